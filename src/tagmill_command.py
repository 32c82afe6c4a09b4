"""What `manage.py` runs in a checkout, and the program `tagmill` where it is installed."""

from __future__ import annotations

import json
import os
import sys
from typing import NoReturn

# These read or write no database.
WITHOUT_DATABASE = {
    "help",
    "--help",
    "version",
    "--version",
    "makemigrations",
    "findstatic",
    "settings",
    "capacity",
    "bench capacity",
    "bench evaluate",
    "bench report",
}


# These give access, or change what is stored: they say where, in case it is not what was meant.
NAMING_DATABASE = {
    "create_token",
    "create_user",
    "createsuperuser",
    "import_lshw",
    "migrate",
    "set_role",
    "setup",
    "tokens",
    "worker_token",
}


def run() -> NoReturn:
    sys.exit(main(sys.argv))


def main(arguments: list[str]) -> int:
    from tagmill_wire import collector
    from tagmill_wire.streams import hold_standard

    collector.starting()
    hold_standard()
    arguments = spelled(arguments)
    command = arguments[1] if len(arguments) > 1 else "help"
    if command == "worker" or arguments[1:3] == ["help", "worker"]:
        # A worker holds no database credentials and needs no Django.
        from tagmill_worker.command import main as work

        return work(arguments[2:] if command == "worker" else ["--help"])
    if command in ("version", "--version"):
        from tagmill_wire import __version__
        from tagmill_wire.messages import VERSION

        print(f"Tagmill {__version__} (protocol {VERSION})")
        return 0
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tagmill.settings")
    try:
        from django.db import DatabaseError

        from tagmill import config, database, extras
        from tagmill.errors import ConfigurationError
    except ImportError as error:
        return lacking(error)

    if said := extras.lacking(command):
        print(said, file=sys.stderr)
        return 2

    where = ""
    try:
        where = database.described(config.load())
        if command in NAMING_DATABASE and "--help" not in arguments:
            print(f"Database: {where}", file=sys.stderr)
        if not WITHOUT_DATABASE & {command, " ".join(arguments[1:3])}:
            database.ensure_running(config.load())
        from django.core.management import execute_from_command_line

        from tagmill.audit import acting

        if command != "serve":
            acting.as_command()

        execute_from_command_line(arguments)
    except ConfigurationError as error:
        print(unconfigured(error) if arguments[1:] == ["doctor", "--json"] else "", end="")
        print(f"Tagmill does not start: {error}", file=sys.stderr)
        return 2
    except ImportError as error:
        if "--traceback" in arguments:
            raise
        return lacking(error)
    except DatabaseError as error:
        if "--traceback" in arguments:
            raise
        print(f"{problem(error)} Database: {where}", file=sys.stderr)
        return 2
    return 0


def spelled(arguments: list[str]) -> list[str]:
    """`create-token` and `create_token` are one command."""
    if len(arguments) > 1 and not arguments[1].startswith("-"):
        return [arguments[0], arguments[1].replace("-", "_"), *arguments[2:]]
    return arguments


def unconfigured(error: Exception) -> str:
    """What `doctor --json` prints where nothing else can be looked at."""
    todo = "correct the variable, or what it names (docs/settings.md)"
    found = {"check": "settings", "state": "failure", "message": str(error), "todo": todo}
    return json.dumps({"ok": False, "findings": [found]}, indent=2) + "\n"


def lacking(error: ImportError) -> int:
    from tagmill import program

    what = (
        "run `make install`, also after an update, and start it with .venv/bin/python"
        if program.IN_CHECKOUT
        else "install it again, with all that it depends on (docs/install.md)"
    )
    print(f"Tagmill lacks a library ({error}): {what}.", file=sys.stderr)
    return 2


def problem(error: Exception) -> str:
    """One line that says what to do."""
    from psycopg import errors

    from tagmill.program import NAME

    said = " ".join(str(error).split())
    if isinstance(error.__cause__, errors.UndefinedTable | errors.UndefinedColumn):
        return f"The database lacks tables or columns: run `{NAME} migrate` first."
    if isinstance(error.__cause__, errors.OperationalError):
        return f"The database does not answer ({said}): look at DATABASE_URL."
    return f"The database refused ({said}); --traceback shows where."


if __name__ == "__main__":
    run()
