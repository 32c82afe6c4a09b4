"""`manage.py create_token`: a token for a user."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from api import tokens
from api.roles import GROUPS
from tagmill.errors import TagmillError


class Command(BaseCommand):
    help = "Print a new API token for a user. It is shown this once: only its hash is stored."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--user", required=True, metavar="NAME")
        parser.add_argument(
            "--role",
            choices=list(GROUPS),
            help="what the token may do, at most what the user may (default: as much); a user who "
            "is missing is made with this role, without a password",
        )
        parser.add_argument(
            "--days",
            type=float,
            help="how long it lasts; 0 is for ever (default: TAGMILL_TOKEN_DAYS)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        days = options["days"]
        if days is not None and not 0 <= days <= tokens.MAX_DAYS:
            raise CommandError(f"--days must be 0 to {tokens.MAX_DAYS}")
        try:
            _, token = tokens.create(options["user"], options["role"], days)
        except TagmillError as error:
            raise CommandError(f"{error.detail} (--role)") from None
        self.stdout.write(token)
