"""The key that servers sign with is the database's: one row."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("api", "0004_shared_cache")]

    operations = [
        migrations.CreateModel(
            name="SigningKey",
            fields=[
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("key", models.CharField(max_length=200)),
            ],
            options={
                "db_table": "signing_key",
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("id", 1)), name="signing_key_is_one")
                ],
            },
        ),
    ]
