"""`manage.py worker_token`: a token for workers."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from tagmill.errors import TagmillError
from tagmill.fleet import clusters
from tagmill.work import workers


class Command(BaseCommand):
    help = "Print a new worker token. It is shown this once: only its hash is stored."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", metavar="NAME", help="what the token is called in lists")
        scope = parser.add_mutually_exclusive_group(required=True)
        scope.add_argument(
            "--cluster", action="append", metavar="C", help="a cluster's name or uuid; repeatable"
        )
        scope.add_argument("--all-clusters", action="store_true", help="also those made later")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            chosen = [clusters.named(key) for key in options["cluster"] or ()]
            _, token = workers.issue_token(
                options["name"], "all" if options["all_clusters"] else chosen
            )
        except TagmillError as error:
            raise CommandError(error.detail) from None
        self.stdout.write(token)
