import django.contrib.postgres.fields
import django.db.models.functions.datetime
from django.db import migrations, models

# What tags name and workers evaluate, ordered by id, and its version: a digest as that of live_version.
# What only previews name is left out: each of them would make another version.
FORWARD = """
CREATE VIEW tagged_set AS
SELECT md5(coalesce(string_agg(int8send(e.id) || e.digest, '' ORDER BY e.id), '')) AS version,
       coalesce(array_agg(e.id ORDER BY e.id), '{}') AS ids
FROM live_expression live
JOIN expression e ON e.id = live.id
WHERE EXISTS (SELECT FROM tag t WHERE t.expression_id = e.id)
   OR EXISTS (SELECT FROM tag t WHERE t.pending_expression_id = e.id)
"""


class Migration(migrations.Migration):
    dependencies = [("matches", "0005_is_settled")]

    operations = [
        migrations.RunSQL(FORWARD, "DROP VIEW tagged_set"),
        migrations.CreateModel(
            name="ExpressionSet",
            fields=[
                ("version", models.CharField(max_length=32, primary_key=True, serialize=False)),
                (
                    "ids",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), size=None
                    ),
                ),
                (
                    "used_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
            options={"db_table": "expression_set"},
        ),
    ]
