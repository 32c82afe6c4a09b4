from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("work", "0013_worktrace"),
    ]

    operations = [
        migrations.AddField(
            model_name="worker",
            name="done_seconds",
            field=models.FloatField(
                db_default=0, editable=False, help_text="that the counts are of; 0: it did not say"
            ),
        ),
        migrations.AddField(
            model_name="worker",
            name="done_partitions",
            field=models.BigIntegerField(db_default=0, editable=False),
        ),
        migrations.AddField(
            model_name="worker",
            name="done_documents",
            field=models.BigIntegerField(db_default=0, editable=False),
        ),
    ]
