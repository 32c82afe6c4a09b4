"""`manage.py setup`: one command, and a server and a worker can start."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from api import setting_up
from api.management.commands.create_user import MAX_PASSWORD
from tagmill.config import load
from tagmill.program import NAME


class Command(BaseCommand):
    help = (
        "Migrate the database, make an admin, a worker's token, and the files that the units in"
        " deploy/systemd read. It can be repeated: what is there stays."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--directory",
            type=Path,
            default=Path("/etc/tagmill"),
            help="where server.env and worker.env are made (default: %(default)s)",
        )
        parser.add_argument("--admin", default="admin", metavar="NAME", help="default: %(default)s")
        parser.add_argument(
            "--password-stdin",
            action="store_true",
            help="the admin's password is the first line of standard input, instead of a new one",
        )
        parser.add_argument("--host", default="", help="the name that clients use for the server")
        parser.add_argument(
            "--proxies", type=int, default=0, help="proxies with TLS in front (default: none)"
        )
        parser.add_argument(
            "--server",
            default="http://127.0.0.1:8080",
            metavar="URL",
            help="where workers find it (default: %(default)s)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        password = sys.stdin.readline(MAX_PASSWORD).strip() if options["password_stdin"] else ""
        if options["password_stdin"]:
            try:
                validate_password(password)
            except ValidationError as error:
                raise CommandError(" ".join(error.messages)) from None
        call_command("migrate", verbosity=0)
        names = ("directory", "admin", "host", "proxies", "server")
        wanted = setting_up.Wanted(password=password, **{name: options[name] for name in names})
        done = setting_up.run(load(), wanted)
        for what in done.made:
            self.stdout.write(f"made  {what}")
        for what in done.kept:
            self.stdout.write(f"kept  {what}")
        if done.password:
            self.stdout.write(f"{options['admin']}'s password, shown this once: {done.password}")
        self.stdout.write(f"Look whether all is well: {NAME} doctor. Then start the units.")
