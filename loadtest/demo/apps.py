from django.apps import AppConfig


class DemoConfig(AppConfig):
    name = "loadtest.demo"
    label = "demo"
