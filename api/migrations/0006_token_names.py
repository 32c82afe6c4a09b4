"""Users' tokens have a name: what they are for."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("api", "0005_signing_key")]

    operations = [
        migrations.AddField(
            model_name="usertoken",
            name="name",
            field=models.CharField(blank=True, help_text="what it is for", max_length=64),
        ),
    ]
