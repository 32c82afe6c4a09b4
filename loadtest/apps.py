from django.apps import AppConfig


class LoadtestConfig(AppConfig):
    name = "loadtest"
    label = "loadtest"
