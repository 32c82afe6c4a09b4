from django.db import migrations

# A digest of what is evaluated: of the ids and digests of the live expressions, ordered by id. An id alone
# may be another definition's after a restore, and a definition may come back with another id.
FORWARD = """
CREATE VIEW live_version AS
SELECT md5(coalesce(string_agg(int8send(e.id) || e.digest, '' ORDER BY e.id), '')) AS version
FROM live_expression live
JOIN expression e ON e.id = live.id
"""


class Migration(migrations.Migration):
    dependencies = [("matches", "0003_settled")]

    operations = [migrations.RunSQL(FORWARD, "DROP VIEW live_version")]
