import django.db.models.functions.datetime
from django.db import migrations, models

# Priorities were -10 for vocabularies, 0 for all, 10 for previews, 11 for both; now they are flags.
JOBS = """
UPDATE procrastinate_jobs
SET priority = CASE priority WHEN -10 THEN 0 WHEN 10 THEN 4 WHEN 11 THEN 5 ELSE 1 END
WHERE task_name = 'evaluate_partition' AND status = 'todo'
"""


class Migration(migrations.Migration):
    # The app was called rebuilds.
    replaces = [("rebuilds", "0005_lease_kinds")]

    dependencies = [
        ("work", "0004_totals"),
        ("procrastinate", "0026_add_job_priority"),
    ]

    operations = [
        migrations.AddField(
            model_name="lease",
            name="kind",
            field=models.PositiveSmallIntegerField(
                db_default=1,
                help_text="what it is for: 0 vocabularies, 1 all, 2 changes, 4 previews",
            ),
        ),
        migrations.RunSQL("UPDATE lease SET kind = 4 WHERE is_preview"),
        migrations.RunSQL(JOBS),
        migrations.RemoveField(model_name="lease", name="is_preview"),
        migrations.AddField(
            model_name="worker",
            name="rebuilds_until",
            field=models.DateTimeField(
                db_default=django.db.models.functions.datetime.Now(),
                editable=False,
                help_text="rebuilds before changes until then",
            ),
        ),
        migrations.AlterField(
            model_name="worker",
            name="ordinary_until",
            field=models.DateTimeField(
                db_default=django.db.models.functions.datetime.Now(),
                editable=False,
                help_text="everything else before previews until then",
            ),
        ),
    ]
