from django.db import migrations

# Which transaction wrote a change, and its place among all changes. Those of before have neither, and
# adding the columns rewrites no table. Numbers are taken under the locks that the change takes: of two that
# concern the same tag or partition, the first to commit has the lower one.
FORWARD = """
CREATE SEQUENCE trail_seq;
ALTER TABLE match_change ADD COLUMN txid xid8, ADD COLUMN seq bigint;
ALTER TABLE match_change ALTER COLUMN txid SET DEFAULT pg_current_xact_id(),
    ALTER COLUMN seq SET DEFAULT nextval('trail_seq');
CREATE INDEX match_change_txid ON match_change (txid) WHERE txid IS NOT NULL;
"""
BACKWARD = """
ALTER TABLE match_change DROP COLUMN txid, DROP COLUMN seq;
DROP SEQUENCE trail_seq;
"""


class Migration(migrations.Migration):
    dependencies = [("matches", "0006_expression_set")]

    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
