from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tags", "0004_preview")]

    operations = [
        migrations.AddField(
            model_name="expression",
            name="attempted_at",
            field=models.DateTimeField(help_text="the last failed evaluation", null=True),
        ),
        migrations.AlterField(
            model_name="expression",
            name="attempts",
            field=models.PositiveSmallIntegerField(db_default=0, help_text="failures in a row"),
        ),
    ]
