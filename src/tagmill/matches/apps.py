from django.apps import AppConfig


class MatchesConfig(AppConfig):
    name = "tagmill.matches"
    label = "matches"
    default_auto_field = "django.db.models.BigAutoField"
