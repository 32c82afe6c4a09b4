"""`manage.py pack_documents`: pack all stored documents now, and not in the background."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from tagmill.config import load
from tagmill.fleet import packing


class Command(BaseCommand):
    help = (
        "Train dictionaries for documents where they are due, and pack all that was stored before "
        "them. Servers do the same in the background. Can be interrupted and run again."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        if not load().pack_documents:
            raise CommandError("TAGMILL_PACK_DOCUMENTS is off: documents are stored as XML")
        before = packing.figures().bytes
        packed = packing.run_all()
        after = packing.figures()
        self.stdout.write(
            f"{packed:,} documents were packed. The table had {before:,} bytes and has "
            f"{after.bytes:,}: PostgreSQL uses again what is free, and VACUUM FULL document gives"
            " it back, while nobody can read documents."
        )
        for found in after.ratios:
            self.stdout.write(f"{found.cluster} {found.probe}: {found.ratio:.1%} of the XML")
        if after.damaged:
            raise CommandError(f"{after.damaged} documents cannot be read: see the log")
