from django.db import migrations, models
from django.db.models.functions import Now


def until(what: str) -> models.DateTimeField:
    return models.DateTimeField(
        db_default=Now(), editable=False, help_text=f"its quota for {what} is spent until then"
    )


class Migration(migrations.Migration):
    dependencies = [("work", "0008_rebuilds_to_tags")]

    operations = [
        migrations.RenameField("worker", "ordinary_until", "preview_quota_until"),
        migrations.RenameField("worker", "rebuilds_until", "change_quota_until"),
        migrations.AlterField("worker", "preview_quota_until", until("previews")),
        migrations.AlterField("worker", "change_quota_until", until("changes")),
    ]
