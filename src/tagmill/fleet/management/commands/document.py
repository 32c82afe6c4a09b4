"""`manage.py document SYSTEM_ID`: the XML that is stored for a node."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from tagmill.errors import TagmillError
from tagmill.fleet.models import Document


class Command(BaseCommand):
    help = (
        "Print a document of a node as it was uploaded, but for its XML declaration. SQL shows "
        "packed bytes in most rows."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("system_id", metavar="SYSTEM_ID")
        parser.add_argument("--probe", default="lshw", help="default: lshw")
        parser.add_argument(
            "--list", action="store_true", help="the probes, and how they are stored"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        found = Document.objects.filter(
            node__system_id=options["system_id"], node__deleted_at=None
        ).order_by("probe")
        if options["list"]:
            for item in found.select_related("dictionary"):
                self.stdout.write(_described(item))
            return
        chosen = next((item for item in found if item.probe == options["probe"]), None)
        if chosen is None:
            raise CommandError(
                f"there is no document of {options['system_id']!r} by {options['probe']!r}: "
                "--list shows what there is"
            )
        try:
            self.stdout.write(chosen.xml)
        except TagmillError as error:
            raise CommandError(error.detail) from None


def _described(item: Document) -> str:
    if item.packed is None:
        return f"{item.probe}: {item.size:,} bytes, as XML"
    version = item.dictionary.version if item.dictionary else None
    return (
        f"{item.probe}: {item.size:,} bytes, packed to {len(item.packed):,} with dictionary"
        f" {item.dictionary_id} (version {version})"
    )
