"""`manage.py create_token`: a token for a user."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from api import tokens
from api.permissions import GROUPS
from tagmill.errors import TagmillError


class Command(BaseCommand):
    help = "Print a new API token for a user. It is shown this once: only its hash is stored."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--user", required=True, metavar="NAME")
        parser.add_argument(
            "--role",
            choices=list(GROUPS),
            help="give the user this role too, and make the user, without a password, if missing",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            _, token = tokens.create(options["user"], options["role"])
        except TagmillError as error:
            raise CommandError(f"{error.detail} (--role)") from None
        self.stdout.write(token)
