from django.apps import AppConfig


class FlowsConfig(AppConfig):
    name = "tagmill.flows"
    label = "flows"
    default_auto_field = "django.db.models.BigAutoField"
