"""`manage.py import_lshw`: what `lshw -xml` printed, into the database."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tagmill.errors import TagmillError
from tagmill.fleet import ingest

# The root node's id is the host name of the machine that lshw ran on. A look is enough: the
# document is parsed, and refused if need be, where it is stored.
_ROOT_ID = re.compile(rb'<node\s+id="([^"]+)"[^>]*\bclass="system"')
_HOSTNAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,253}[A-Za-z0-9])?")
# What lshw prints where it could not find the name out.
_NO_HOSTNAMES = {"computer", "localhost", "localhost.localdomain", "unknown"}


class Command(BaseCommand):
    help = "Store documents that `lshw -xml` printed, one machine a file."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
        parser.add_argument("--cluster", metavar="NAME", help="where new nodes go")
        parser.add_argument(
            "--system-id",
            metavar="ID",
            help="the node's system_id, for one FILE (default: its name up to the first dot)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        files: list[Path] = options["files"]
        if options["system_id"] and len(files) > 1:
            raise CommandError("--system-id names one node: give one FILE")
        refused = sum(
            not self._store(path, options["system_id"], options["cluster"]) for path in files
        )
        if refused:
            raise CommandError(f"{refused} of {len(files)} refused")

    def _store(self, path: Path, system_id: str | None, cluster: str | None) -> bool:
        """Store one file, and say so. False where it was refused or cannot be read."""
        system_id = system_id or path.name.partition(".")[0]
        try:
            xml = path.read_bytes()
            upload = ingest.Upload(system_id, cluster, hostname(xml), None, {"lshw": xml})
            (verdict,) = ingest.store([upload])
        except (OSError, TagmillError) as error:
            self.stderr.write(f"{path}: {error}")
            return False
        if verdict.error:
            self.stderr.write(f"{path}: refused: {_with_place(verdict.error)}")
            return False
        self.stdout.write(f"{path}: {verdict.outcome} {verdict.system_id}")
        return True


def hostname(xml: bytes) -> str | None:
    """The host name in a document that lshw printed, or None where it has no plausible one."""
    found = _ROOT_ID.search(xml)
    name = found[1].decode(errors="replace") if found else ""
    plausible = _HOSTNAME.fullmatch(name) and name.lower() not in _NO_HOSTNAMES
    return name if plausible else None


def _with_place(error: TagmillError) -> str:
    place = ", ".join(
        f"{key} {error.extra[key]}" for key in ("line", "column") if key in error.extra
    )
    return f"{error.detail} ({place})" if place else error.detail
