"""`manage.py cache`: what the body cache of all servers counts, and what is asked of it."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from rich.console import Console
from rich.table import Table

from api.cache import controls
from api.cache.controls import Scope
from api.cache.keyspaces import KEYSPACES
from api.rest import cache
from tagmill.errors import TagmillError

SHOWN = ("lookups", "hits", "misses", "coalesced", "builds", "oversize", "evicted_bytes", "entries",
         "bytes")  # fmt: skip


class Command(BaseCommand):
    help = "The body cache of all servers: what it counts; flush it, switch it off and on."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        stats = actions.add_parser("stats", help="lookups, hits, misses, bytes by keyspace")
        stats.add_argument("--json", action="store_true", help="as the REST API has it")
        for name, meaning in (
            ("flush", "nobody gets what is kept by now"),
            ("disable", "build every body for each request"),
            ("enable", "undo disable; without an option, all of it"),
        ):
            action = actions.add_parser(name, help=meaning)
            action.add_argument("--keyspace", choices=list(KEYSPACES))
            action.add_argument("--tag", metavar="NAME", help="bodies about this tag")
            action.add_argument("--partition", type=int, metavar="ID", help="its batches")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["action"] != "stats":
                self._control(options)
        except TagmillError as error:
            raise CommandError(error.detail) from None
        if options["action"] == "stats":
            found = cache.body()
            self.stdout.write(json.dumps(found, default=str)) if options["json"] else _show(found)

    def _control(self, options: dict[str, Any]) -> None:
        scope = Scope(options["keyspace"], options["tag"], options["partition"])
        if options["action"] == "flush":
            controls.flush(scope)
        else:
            controls.switch(scope, is_off=options["action"] == "disable")
        done = {"flush": "flushed", "disable": "switched off", "enable": "switched on"}
        self.stdout.write(f"{scope.name}: {done[options['action']]} on all servers.")


def _show(found: dict[str, Any]) -> None:
    console = Console()
    table = Table("keyspace", *(name.replace("_", " ") for name in SHOWN), "build s")
    for row in found["keyspaces"]:
        figures = (f"{row[name]:,}" for name in SHOWN)
        table.add_row(row["keyspace"], *figures, f"{row['build_seconds']:.2f}")
    console.print(table)
    for control in found["controls"]:
        state = "off" if control["is_off"] else "on"
        console.print(f"{control['scope']}: {state}, flushed {control['generation']} times")
