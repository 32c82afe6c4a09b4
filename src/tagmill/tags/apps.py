from django.apps import AppConfig


class TagsConfig(AppConfig):
    name = "tagmill.tags"
    label = "tags"
    default_auto_field = "django.db.models.BigAutoField"
