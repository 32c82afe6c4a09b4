from importlib import import_module

from django.db import migrations

trigger = import_module("tagmill.audit.migrations.0002_triggers").trigger


class Migration(migrations.Migration):
    dependencies = [("api", "0002_tokens_of_knox"), ("audit", "0002_triggers")]

    operations = [trigger("user_token", "user_token")]
