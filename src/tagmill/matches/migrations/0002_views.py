from django.db import migrations, models

# What is evaluated, and what each stored match says of which rev. Nothing else computes either.
#
# live_expression: an expression counts while a tag or a live preview names it and it has not failed.
# `is_preview`: somebody waits for it in a preview.
#
# effective_match: `rev` decides whether a match is fresh (it is its partition's) and what it is a base
# for; `true_at` is the rev that its members were true at. Both are the same, but while a rebuild is
# forced: `rev` is -1 then.
FORWARD = """
CREATE VIEW live_expression AS
SELECT e.id,
       e.preview_until > now() IS TRUE
       AND EXISTS (SELECT FROM preview v WHERE v.expression_id = e.id AND v.completed_at IS NULL)
           AS is_preview
FROM expression e
WHERE e.failed_at IS NULL
  AND (
      EXISTS (SELECT FROM tag t WHERE t.expression_id = e.id)
      OR EXISTS (SELECT FROM tag t WHERE t.pending_expression_id = e.id)
      OR e.preview_until > now()
  );
"""
EFFECTIVE = """
CREATE VIEW effective_match AS
SELECT expression_id, partition_id, rev, coalesce(kept_rev, rev) AS true_at, members, evaluated_at
FROM match;
"""
BACKWARD = "DROP VIEW effective_match; DROP VIEW live_expression"


class Migration(migrations.Migration):
    dependencies = [("matches", "0001_initial"), ("tags", "0009_rooms")]

    operations = [
        migrations.RunSQL(FORWARD + EFFECTIVE, BACKWARD),
        migrations.CreateModel(
            name="EffectiveMatch",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "expression_id",
                        "partition_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("rev", models.BigIntegerField()),
                ("true_at", models.BigIntegerField()),
                ("members", models.BinaryField()),
                ("evaluated_at", models.DateTimeField()),
            ],
            options={"db_table": "effective_match", "managed": False},
        ),
    ]
