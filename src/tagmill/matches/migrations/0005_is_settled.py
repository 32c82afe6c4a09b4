from importlib import import_module

from django.db import migrations

SETTLED = import_module("tagmill.matches.migrations.0003_settled")
# Whether a match has no rev of its own: who locks a match needs it, and asks the view for everything.
FORWARD = SETTLED.VIEW.replace(
    "AS evaluated_at\n", "AS evaluated_at,\n       m.rev IS NULL AS is_settled\n"
)
BACKWARD = f"""
DROP VIEW effective_match;
{SETTLED.VIEW}
"""


class Migration(migrations.Migration):
    dependencies = [("matches", "0004_live_version")]

    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
