"""`manage.py restored`: says that the database went back to an earlier state."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from tagmill.flows import restoring


class Command(BaseCommand):
    help = (
        "Declare that the database went back to an earlier state in a way that Tagmill cannot see "
        "(docs/backup.md): workers drop what they hold, and every tag is evaluated again. Readers "
        "keep the nodes that the tags have until then."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        made = restoring.declare()
        self.stdout.write(
            f"The database has a new incarnation, {made.incarnation}: workers register again and "
            f"drop what they hold. {made.matches} matches in {made.partitions} partitions are "
            "evaluated again; tags are `building` until theirs are."
        )
