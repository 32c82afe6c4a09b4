#!/usr/bin/env python3
"""Tagmill's commands. `manage.py help` lists them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
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


def main(arguments: list[str]) -> int:
    sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "workers")]
    command = arguments[1] if len(arguments) > 1 else "help"
    if command == "worker":
        # A worker holds no database credentials and needs no Django.
        from tagmill_worker.command import main as work

        return work(arguments[2:])
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tagmill.settings")
    from tagmill import config, database
    from tagmill.errors import ConfigurationError

    try:
        if not WITHOUT_DATABASE & {command, " ".join(arguments[1:3])}:
            database.ensure_running(config.load())
        from django.core.management import execute_from_command_line

        from tagmill.audit import acting

        if command != "serve":
            acting.as_command()

        execute_from_command_line(arguments)
    except ConfigurationError as error:
        print(f"Tagmill does not start: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
