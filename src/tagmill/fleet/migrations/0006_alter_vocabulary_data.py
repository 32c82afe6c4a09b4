from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("fleet", "0005_incarnation"),
    ]

    operations = [
        migrations.AlterField(
            model_name="vocabulary",
            name="data",
            field=models.BinaryField(
                help_text="tagmill_expressions.vocabulary.Vocabulary.dump, by zstd"
            ),
        ),
    ]
