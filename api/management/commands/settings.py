"""`manage.py settings`: every setting, its default and its meaning."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from tagmill import config


class Command(BaseCommand):
    help = "Print every setting as a Markdown table (the body of docs/settings.md)."

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(config.table(), ending="")
