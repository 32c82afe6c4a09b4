from importlib import import_module

import django.db.models.deletion
from django.db import migrations, models

# A match without a rev is settled: it is true at its partition's `settled_rev`.
#
# effective_match: `rev` decides whether a match is fresh (it is its partition's) and what it is a base
# for; `true_at` is the rev that its members were true at. Both are the same, but while a rebuild is
# forced: `rev` is -1 then.
VIEW = """
CREATE OR REPLACE VIEW effective_match AS
SELECT m.expression_id, m.partition_id,
       coalesce(m.rev, p.settled_rev) AS rev,
       coalesce(m.kept_rev, m.rev, p.settled_rev) AS true_at,
       m.members,
       CASE WHEN m.rev IS NULL THEN greatest(m.evaluated_at, p.settled_at) ELSE m.evaluated_at END
           AS evaluated_at
FROM match m
JOIN partition p ON p.id = m.partition_id
"""
BEFORE = import_module("tagmill.matches.migrations.0002_views")
# What is fresh is settled from now on: what else there is has a rev of its own.
SETTLE = """
UPDATE partition SET settled_rev = rev;
UPDATE match SET rev = NULL FROM partition p WHERE p.id = partition_id AND match.rev = p.rev
"""
UNSETTLE = """
UPDATE match SET rev = p.settled_rev FROM partition p WHERE p.id = partition_id AND match.rev IS NULL
"""


class Migration(migrations.Migration):
    dependencies = [("fleet", "0007_settled"), ("matches", "0002_views")]

    operations = [
        migrations.RemoveIndex(model_name="match", name="match_partition_rev"),
        migrations.AlterField(
            model_name="match",
            name="expression",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="matches",
                to="matches.expression",
            ),
        ),
        migrations.AlterField(
            model_name="match",
            name="partition",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="matches",
                to="fleet.partition",
            ),
        ),
        migrations.AddIndex(
            model_name="match",
            index=models.Index(fields=["partition"], name="match_partition"),
        ),
        migrations.AlterField(
            model_name="match",
            name="rev",
            field=models.BigIntegerField(help_text="null: the partition's settled_rev", null=True),
        ),
        migrations.RunSQL(SETTLE, UNSETTLE),
        migrations.RunSQL(VIEW, f"DROP VIEW effective_match; {BEFORE.EFFECTIVE}"),
    ]
