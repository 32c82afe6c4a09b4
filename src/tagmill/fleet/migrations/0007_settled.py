from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    dependencies = [("fleet", "0006_alter_vocabulary_data")]

    operations = [
        migrations.AddField(
            model_name="partition",
            name="settled_rev",
            field=models.BigIntegerField(
                db_default=0, help_text="what its settled matches are true at; never above rev"
            ),
        ),
        migrations.AddField(
            model_name="partition",
            name="settled_at",
            field=models.DateTimeField(
                db_default=Now(), editable=False, help_text="when settled_rev was last moved"
            ),
        ),
    ]
