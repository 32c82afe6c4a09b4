import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tags", "0008_trail"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("fleet", "0006_alter_vocabulary_data"),
    ]

    # The models come from `tags`; their tables stay as they are.
    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.CreateModel(
                    name="Expression",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True,
                                primary_key=True,
                                serialize=False,
                                verbose_name="ID",
                            ),
                        ),
                        ("text", models.TextField()),
                        (
                            "namespaces",
                            models.JSONField(default=dict, help_text="prefix to namespace URI"),
                        ),
                        (
                            "digest",
                            models.BinaryField(
                                help_text="SHA-256 of the canonical [text, namespaces]",
                                max_length=32,
                                unique=True,
                            ),
                        ),
                        (
                            "created_at",
                            models.DateTimeField(
                                db_default=django.db.models.functions.datetime.Now(), editable=False
                            ),
                        ),
                        (
                            "used_at",
                            models.DateTimeField(
                                db_default=django.db.models.functions.datetime.Now(),
                                help_text="last time a tag or preview named it",
                            ),
                        ),
                        (
                            "named_at",
                            models.DateTimeField(
                                help_text="when a tag named it first; null: previews only",
                                null=True,
                            ),
                        ),
                        (
                            "preview_until",
                            models.DateTimeField(
                                help_text="a live preview counts until then", null=True
                            ),
                        ),
                        (
                            "attempts",
                            models.PositiveSmallIntegerField(
                                db_default=0, help_text="failures in a row"
                            ),
                        ),
                        (
                            "failed_by",
                            django.contrib.postgres.fields.ArrayField(
                                base_field=models.BigIntegerField(),
                                db_default=[],
                                help_text="the workers of those failures",
                                size=None,
                            ),
                        ),
                        (
                            "attempted_at",
                            models.DateTimeField(help_text="the last failed evaluation", null=True),
                        ),
                        ("failed_at", models.DateTimeField(null=True)),
                        (
                            "failure",
                            models.TextField(
                                db_default="", help_text="why it failed; empty while it has not"
                            ),
                        ),
                    ],
                    options={
                        "db_table": "expression",
                    },
                ),
                migrations.CreateModel(
                    name="Match",
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
                        ("kept_rev", models.BigIntegerField(null=True)),
                        ("members", models.BinaryField()),
                        (
                            "evaluated_at",
                            models.DateTimeField(
                                db_default=django.db.models.functions.datetime.Now()
                            ),
                        ),
                        (
                            "expression",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="matches",
                                to="matches.expression",
                            ),
                        ),
                        (
                            "partition",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="matches",
                                to="fleet.partition",
                            ),
                        ),
                    ],
                    options={
                        "db_table": "match",
                        "indexes": [
                            models.Index(fields=["partition", "rev"], name="match_partition_rev")
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="MatchChange",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True,
                                primary_key=True,
                                serialize=False,
                                verbose_name="ID",
                            ),
                        ),
                        (
                            "from_rev",
                            models.BigIntegerField(
                                help_text="null: evaluated for the first time", null=True
                            ),
                        ),
                        ("to_rev", models.BigIntegerField()),
                        ("added", models.BinaryField()),
                        ("removed", models.BinaryField()),
                        (
                            "at",
                            models.DateTimeField(
                                db_default=django.db.models.functions.datetime.Now()
                            ),
                        ),
                        (
                            "expression",
                            models.ForeignKey(
                                db_constraint=False,
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="changes",
                                to="matches.expression",
                            ),
                        ),
                        (
                            "partition",
                            models.ForeignKey(
                                db_constraint=False,
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="changes",
                                to="fleet.partition",
                            ),
                        ),
                    ],
                    options={
                        "db_table": "match_change",
                        "indexes": [
                            models.Index(
                                fields=["expression", "id"], name="match_change_expression"
                            ),
                            django.contrib.postgres.indexes.BrinIndex(
                                fields=["at"], name="match_change_at"
                            ),
                        ],
                    },
                ),
            ],
        ),
        # What refers to the models by their content type (permissions, the admin's log) follows them.
        migrations.RunSQL(
            "UPDATE django_content_type SET app_label = 'matches' "
            "WHERE app_label = 'tags' AND model IN ('expression', 'match', 'matchchange')",
            migrations.RunSQL.noop,
        ),
    ]
