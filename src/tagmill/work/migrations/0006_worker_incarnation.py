import uuid

from django.db import migrations, models


class Migration(migrations.Migration):
    # The app was called rebuilds.
    replaces = [("rebuilds", "0006_worker_incarnation")]

    dependencies = [("work", "0005_lease_kinds"), ("fleet", "0005_incarnation")]

    operations = [
        migrations.AddField(
            model_name="worker",
            name="incarnation",
            # Workers from before have none that is right: they register again.
            field=models.UUIDField(
                default=uuid.UUID(int=0),
                editable=False,
                help_text="the database's when it registered: in another it is void",
            ),
            preserve_default=False,
        ),
    ]
