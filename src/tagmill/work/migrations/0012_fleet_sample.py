"""Samples of the fleet, for charts of the last hours."""

from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    dependencies = [("work", "0011_placement")]

    operations = [
        migrations.CreateModel(
            name="Sample",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField(db_default=Now(), unique=True)),
                ("nodes", models.BigIntegerField()),
                ("stale", models.BigIntegerField(help_text="matches that wait for evaluation")),
                ("jobs", models.BigIntegerField(help_text="partitions that wait for a worker")),
                ("leases", models.BigIntegerField(help_text="partitions that a worker is at")),
                ("workers", models.BigIntegerField(help_text="workers that were heard of")),
                (
                    "changes",
                    models.BigIntegerField(help_text="of partitions since the sample before"),
                ),
                (
                    "verdicts",
                    models.BigIntegerField(help_text="by workers since the sample before"),
                ),
                (
                    "revs",
                    models.BigIntegerField(
                        help_text="the sum of all revs, which the next one counts from"
                    ),
                ),
            ],
            options={"db_table": "fleet_sample"},
        ),
    ]
