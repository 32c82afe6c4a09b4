from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("api", "0003_audit_of_user_tokens")]

    operations = [
        migrations.CreateModel(
            name="CacheEntry",
            fields=[
                ("cache_key", models.CharField(max_length=255, primary_key=True, serialize=False)),
                ("value", models.TextField()),
                ("expires", models.DateTimeField(db_index=True)),
            ],
            options={"db_table": "cache_entry"},
        ),
    ]
