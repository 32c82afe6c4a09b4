import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0007_settled")]

    operations = [
        migrations.CreateModel(
            name="SharedImage",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "schema",
                    models.CharField(
                        help_text="what made it: workers read their own", max_length=64
                    ),
                ),
                (
                    "incarnation",
                    models.UUIDField(help_text="of the database; those of others are deleted"),
                ),
                (
                    "rev",
                    models.BigIntegerField(help_text="the partition's, with it; never above it"),
                ),
                (
                    "digest",
                    models.CharField(
                        help_text="BLAKE2b of the file, in hexadecimal digits", max_length=64
                    ),
                ),
                ("size", models.BigIntegerField(help_text="bytes of the file")),
                (
                    "file",
                    models.CharField(
                        help_text="its name in the image store", max_length=255, unique=True
                    ),
                ),
                (
                    "stored_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
                (
                    "partition",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="images",
                        to="fleet.partition",
                    ),
                ),
            ],
            options={"db_table": "shared_image"},
        ),
        migrations.AddConstraint(
            model_name="sharedimage",
            constraint=models.UniqueConstraint(
                fields=("partition", "schema"), name="shared_image_newest"
            ),
        ),
    ]
