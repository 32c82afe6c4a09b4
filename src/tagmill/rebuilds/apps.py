from django.apps import AppConfig


class RebuildsConfig(AppConfig):
    name = "tagmill.rebuilds"
    label = "rebuilds"
    default_auto_field = "django.db.models.BigAutoField"
