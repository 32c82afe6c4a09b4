import uuid

import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("fleet", "0006_alter_vocabulary_data"),
        ("matches", "0001_initial"),
        ("tags", "0008_trail"),
        ("work", "0008_rebuilds_to_tags"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    # Models come from `work` and went to `matches`; their tables stay as they are.
    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RemoveField(
                    model_name="matchchange",
                    name="expression",
                ),
                migrations.AlterField(
                    model_name="preview",
                    name="expression",
                    field=models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="previews",
                        to="matches.expression",
                    ),
                ),
                migrations.AlterField(
                    model_name="tag",
                    name="pending_expression",
                    field=models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="pending_tags",
                        to="matches.expression",
                    ),
                ),
                migrations.AlterField(
                    model_name="tag",
                    name="expression",
                    field=models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="published_tags",
                        to="matches.expression",
                    ),
                ),
                migrations.RemoveField(
                    model_name="match",
                    name="expression",
                ),
                migrations.RemoveField(
                    model_name="match",
                    name="partition",
                ),
                migrations.RemoveField(
                    model_name="matchchange",
                    name="partition",
                ),
                migrations.CreateModel(
                    name="Rebuild",
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
                        ("uuid", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                        (
                            "reason",
                            models.CharField(
                                choices=[
                                    ("created", "tag created"),
                                    ("definition", "definition changed"),
                                    ("forced", "asked for by a user"),
                                ],
                                max_length=16,
                            ),
                        ),
                        (
                            "state",
                            models.CharField(
                                choices=[
                                    ("running", "Running"),
                                    ("complete", "Complete"),
                                    ("cancelled", "Cancelled"),
                                    ("failed", "Failed"),
                                    ("superseded", "Superseded"),
                                ],
                                db_default="running",
                                max_length=16,
                            ),
                        ),
                        (
                            "requested_at",
                            models.DateTimeField(
                                db_default=django.db.models.functions.datetime.Now(), editable=False
                            ),
                        ),
                        ("finished_at", models.DateTimeField(null=True)),
                        (
                            "totals",
                            models.JSONField(
                                help_text="the progress at the end; the targets are deleted from then on",
                                null=True,
                            ),
                        ),
                        (
                            "published_without",
                            models.JSONField(
                                db_default=[],
                                default=list,
                                help_text="clusters that a user published the tags without",
                            ),
                        ),
                        (
                            "requested_by",
                            models.ForeignKey(
                                null=True,
                                on_delete=django.db.models.deletion.SET_NULL,
                                related_name="+",
                                to=settings.AUTH_USER_MODEL,
                            ),
                        ),
                        (
                            "tags",
                            models.ManyToManyField(
                                db_table="rebuild_tag", related_name="rebuilds", to="tags.tag"
                            ),
                        ),
                    ],
                    options={
                        "db_table": "rebuild",
                        "ordering": ["-id"],
                    },
                ),
                migrations.CreateModel(
                    name="RebuildTarget",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "rebuild_id",
                                "expression_id",
                                "partition_id",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("rev", models.BigIntegerField()),
                        (
                            "expression",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="+",
                                to="matches.expression",
                            ),
                        ),
                        (
                            "partition",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="+",
                                to="fleet.partition",
                            ),
                        ),
                        (
                            "rebuild",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="targets",
                                to="tags.rebuild",
                            ),
                        ),
                    ],
                    options={
                        "db_table": "rebuild_target",
                    },
                ),
                migrations.DeleteModel(
                    name="Expression",
                ),
                migrations.DeleteModel(
                    name="Match",
                ),
                migrations.DeleteModel(
                    name="MatchChange",
                ),
                migrations.AddIndex(
                    model_name="rebuild",
                    index=models.Index(
                        condition=models.Q(("state", "running")),
                        fields=["id"],
                        name="rebuild_running",
                    ),
                ),
            ],
        ),
    ]
