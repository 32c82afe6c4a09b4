"""`manage.py doctor`: is everything as it should be, and what to do where it is not."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand
from django.db import connection

from api import doctor
from tagmill import database
from tagmill.config import load
from tagmill.flows.diagnosis import State

SIGNS = {State.OK: "ok     ", State.WARNING: "WARNING", State.FAILURE: "FAILURE"}


class Command(BaseCommand):
    help = (
        "Check settings, database, clock, disk, workers, cache and permissions, and say what to do."
        " Ends with 1 where something fails, 2 where a setting is bad; warnings are 0."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="an object with all findings")

    def handle(self, *args: Any, **options: Any) -> None:
        config = load()
        database.bound_statements(connection.settings_dict, config)
        found = doctor.examine(config)
        failed = any(finding.state is State.FAILURE for finding in found)
        if options["json"]:
            shown = {"ok": not failed, "findings": [asdict(finding) for finding in found]}
            self.stdout.write(json.dumps(shown, indent=2))
        else:
            for finding in found:
                self.stdout.write(f"{SIGNS[finding.state]} {finding.check}: {finding.message}")
                if finding.todo:
                    self.stdout.write(f"        {finding.todo}")
        if failed:
            sys.exit(1)
