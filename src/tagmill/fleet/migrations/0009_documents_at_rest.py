import django.db.models.deletion
from django.db import migrations, models
from django.db.models.functions import Now

# What zstd has packed does not become shorter. Up to this size a row stays in the table's own pages,
# two of the largest on each.
STORAGE = """
ALTER TABLE document ALTER COLUMN packed SET STORAGE EXTERNAL;
ALTER TABLE document SET (toast_tuple_target = 4080);
"""
STORAGE_BEFORE = "ALTER TABLE document RESET (toast_tuple_target)"
# Servers of before do not know packed documents: where there are any documents, they have time to be
# replaced.
BEGIN = """
INSERT INTO document_packing (id, not_before)
SELECT 1, CASE WHEN EXISTS (SELECT FROM document) THEN now() + interval '15 minutes' ELSE now() END
"""


class Migration(migrations.Migration):
    dependencies = [("fleet", "0008_shared_image")]

    operations = [
        migrations.CreateModel(
            name="DocumentDictionary",
            fields=[
                (
                    "id",
                    models.BigIntegerField(
                        help_text="of `data`, see at_rest.identity",
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="dictionaries",
                        to="fleet.cluster",
                    ),
                ),
                ("probe", models.CharField(max_length=64)),
                (
                    "version",
                    models.PositiveIntegerField(help_text="1, 2, 3, ...; the highest packs"),
                ),
                ("data", models.BinaryField()),
                (
                    "ratio",
                    models.FloatField(
                        help_text="packed bytes a byte of XML: what it is measured against"
                    ),
                ),
                ("ratio_now", models.FloatField(help_text="the same at the last look")),
                ("trained_at", models.DateTimeField(db_default=Now(), editable=False)),
            ],
            options={
                "db_table": "document_dictionary",
                "constraints": [
                    models.UniqueConstraint(
                        fields=["cluster", "probe", "version"], name="document_dictionary_version"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="DocumentLook",
            fields=[
                (
                    "cluster",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="document_look",
                        serialize=False,
                        to="fleet.cluster",
                    ),
                ),
                ("looked_at", models.DateTimeField(db_default=Now())),
                ("nodes", models.PositiveIntegerField()),
            ],
            options={"db_table": "document_look"},
        ),
        migrations.CreateModel(
            name="DocumentPacking",
            fields=[
                ("id", models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                (
                    "not_before",
                    models.DateTimeField(
                        db_default=Now(),
                        help_text="no document is packed earlier, nor a dictionary trained",
                    ),
                ),
                ("node", models.BigIntegerField(null=True)),
                ("probe", models.CharField(db_default="", max_length=64)),
                (
                    "left",
                    models.BigIntegerField(db_default=0, help_text="documents not seen yet, about"),
                ),
                (
                    "damaged",
                    models.BigIntegerField(
                        db_default=0, help_text="documents that could not be read"
                    ),
                ),
            ],
            options={
                "db_table": "document_packing",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("id", 1)), name="document_packing_is_one"
                    )
                ],
            },
        ),
        # The column keeps its name.
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    "ALTER TABLE document ALTER COLUMN xml DROP NOT NULL",
                    "ALTER TABLE document ALTER COLUMN xml SET NOT NULL",
                )
            ],
            state_operations=[
                migrations.RenameField("document", "xml", "plain"),
                migrations.AlterField(
                    model_name="document",
                    name="plain",
                    field=models.TextField(
                        db_column="xml", help_text="null where it is packed", null=True
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="document",
            name="packed",
            field=models.BinaryField(help_text="by zstd; in the row where it fits", null=True),
        ),
        migrations.AddField(
            model_name="document",
            name="dictionary",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                to="fleet.documentdictionary",
            ),
        ),
        migrations.AddConstraint(
            model_name="document",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("dictionary__isnull", False), ("packed__isnull", False), ("plain", None)
                )
                | models.Q(("dictionary", None), ("packed", None), ("plain__isnull", False)),
                name="document_is_stored_once",
            ),
        ),
        migrations.RunSQL(STORAGE, STORAGE_BEFORE),
        migrations.RunSQL(BEGIN, migrations.RunSQL.noop),
    ]
