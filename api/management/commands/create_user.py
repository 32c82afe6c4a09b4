"""`manage.py create_user`: somebody who can log in at the web page."""

from __future__ import annotations

import getpass
import sys
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from api import users
from api.roles import GROUPS
from tagmill.errors import TagmillError

MAX_PASSWORD = 4096


class Command(BaseCommand):
    help = (
        "Make a user who can log in at /admin/ and over the API, or give one who is there a new"
        " password and role. Asks for the password, or reads a line of standard input."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", metavar="NAME")
        parser.add_argument("--role", required=True, choices=list(GROUPS))

    def handle(self, *args: Any, **options: Any) -> None:
        password = _password()
        try:
            validate_password(password)
            user = users.create(options["name"], password, options["role"])
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from None
        except TagmillError as error:
            raise CommandError(error.detail) from None
        name = user.get_username()
        self.stdout.write(f"{name} can log in at /admin/, with the role {options['role']}.")


def _password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline(MAX_PASSWORD).rstrip("\r\n")
    password = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != password:
        raise CommandError("the two differ: try again")
    return password
