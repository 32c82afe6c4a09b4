"""`manage.py set_role`: what a user may do."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from api import users
from api.roles import GROUPS
from tagmill.errors import TagmillError


class Command(BaseCommand):
    help = "Give a user a role in place of the one before. All the user's tokens follow at once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--user", required=True, metavar="NAME")
        parser.add_argument("--role", required=True, choices=[*GROUPS, "none"])
        parser.add_argument(
            "--cluster",
            action="append",
            metavar="NAME",
            help="in this cluster alone, beside the role that holds everywhere; can be repeated",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        role = None if options["role"] == "none" else options["role"]
        try:
            if options["cluster"]:
                users.set_cluster_roles(options["user"], dict.fromkeys(options["cluster"], role))
            else:
                users.set_role(options["user"], role)
        except TagmillError as error:
            raise CommandError(error.detail) from None
        where = f" in {', '.join(options['cluster'])}" if options["cluster"] else ""
        self.stdout.write(f"{options['user']} has the role {options['role']}{where} now.")
