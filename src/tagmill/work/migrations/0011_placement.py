import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("fleet", "0007_settled"),
        ("work", "0010_definition_quota"),
    ]

    operations = [
        migrations.AddField(
            model_name="worker",
            name="room",
            field=models.BigIntegerField(
                db_default=0,
                editable=False,
                help_text="bytes that it can hold; 0: it is to own nothing",
            ),
        ),
        migrations.AddField(
            model_name="worker",
            name="is_ready",
            field=models.BooleanField(
                db_default=False,
                editable=False,
                help_text="it has warmed what it was to own when it came",
            ),
        ),
        migrations.CreateModel(
            name="Placement",
            fields=[
                (
                    "cluster",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="placement",
                        serialize=False,
                        to="fleet.cluster",
                    ),
                ),
                (
                    "epoch",
                    models.BigIntegerField(
                        help_text="of the last change; it grows in commit order"
                    ),
                ),
                (
                    "partitions",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), size=None
                    ),
                ),
                (
                    "owners",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        help_text="the worker that is to hold each",
                        size=None,
                    ),
                ),
                (
                    "counting",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        help_text="the worker that is preferred for each meanwhile",
                        size=None,
                    ),
                ),
                (
                    "silent_since",
                    models.DateTimeField(
                        help_text="since when more than half of its workers have been silent",
                        null=True,
                    ),
                ),
            ],
            options={"db_table": "placement"},
        ),
        # A number is never given twice, also not after a transaction that was rolled back.
        migrations.RunSQL("CREATE SEQUENCE membership_epoch", "DROP SEQUENCE membership_epoch"),
    ]
