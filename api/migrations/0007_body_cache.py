"""What was asked of the body cache, and what the processes of all servers have counted."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("api", "0006_token_names"),
    ]

    operations = [
        migrations.CreateModel(
            name="BodyCacheControl",
            fields=[
                (
                    "scope",
                    models.CharField(
                        help_text="all, or a keyspace, a tag, a partition",
                        max_length=400,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("generation", models.BigIntegerField(help_text="raised by each flush")),
                ("is_off", models.BooleanField(db_default=False)),
                (
                    "changed_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
            ],
            options={
                "verbose_name": "control of the body cache",
                "verbose_name_plural": "controls of the body cache",
                "db_table": "body_cache_control",
                "ordering": ["scope"],
            },
        ),
        migrations.CreateModel(
            name="BodyCacheReport",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("process", models.CharField(max_length=100)),
                ("keyspace", models.CharField(max_length=32)),
                ("lookups", models.BigIntegerField()),
                ("hits", models.BigIntegerField()),
                ("misses", models.BigIntegerField()),
                ("coalesced", models.BigIntegerField()),
                ("evicted_bytes", models.BigIntegerField()),
                ("oversize", models.BigIntegerField()),
                ("builds", models.BigIntegerField()),
                ("build_seconds", models.FloatField()),
                ("entries", models.BigIntegerField()),
                ("bytes", models.BigIntegerField()),
                (
                    "at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
            ],
            options={
                "verbose_name": "count of the body cache",
                "verbose_name_plural": "counts of the body cache",
                "db_table": "body_cache_report",
                "ordering": ["process", "keyspace"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("process", "keyspace"), name="body_cache_report_one"
                    )
                ],
            },
        ),
    ]
