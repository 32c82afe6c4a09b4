"""`manage.py tokens`: who may ask, and an end to it."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from api.models import UserToken
from tagmill.errors import TagmillError
from tagmill.program import NAME
from tagmill.work import workers
from tagmill.work.models import WorkerToken


class Command(BaseCommand):
    help = "List the tokens of workers and users, or revoke some."

    def add_arguments(self, parser: ArgumentParser) -> None:
        calls = parser.add_subparsers(dest="call", metavar="list|revoke-worker|revoke-user")
        calls.add_parser("list", help="all of them, without their secrets (the default)")
        worker = calls.add_parser("revoke-worker", help="workers with it stop; its name is free")
        worker.add_argument("key", metavar="NAME", help="the token's name, or its lookup")
        user = calls.add_parser("revoke-user", help="one token of a user, or all")
        user.add_argument("user", metavar="USER")
        which = user.add_mutually_exclusive_group(required=True)
        which.add_argument("--key", help="as the list shows it")
        which.add_argument("--all", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["call"] == "revoke-worker":
            self._revoke_worker(options["key"])
        elif options["call"] == "revoke-user":
            self._revoke_user(options["user"], options["key"])
        else:
            self._list()

    def _list(self) -> None:
        for token in WorkerToken.objects.prefetch_related("clusters").order_by("name", "id"):
            clusters = workers.clusters_of(token)
            names = "all" if clusters is None else ", ".join(map(str, clusters))
            ended = f"revoked {token.revoked_at:%F}" if token.revoked_at else "valid"
            self._line("worker", token.name, token.lookup, f"clusters {names}", ended)
        for mine in UserToken.objects.select_related("user").order_by("user__username", "id"):
            until = f"until {mine.expires_at:%F}" if mine.expires_at else "for ever"
            used = f"used {mine.last_used_at:%F}" if mine.last_used_at else "never used"
            self._line("user", mine.user.get_username(), mine.key, mine.role, until, used)

    def _line(self, *cells: str) -> None:
        self.stdout.write("\t".join(cells))

    def _revoke_worker(self, key: str) -> None:
        try:
            count = workers.revoke(key)
        except TagmillError as error:
            raise CommandError(f"{error.detail}: `{NAME} tokens` lists them") from None
        self.stdout.write("It is revoked." if count else "It was revoked before.")

    def _revoke_user(self, name: str, key: str | None) -> None:
        found = UserToken.objects.filter(user__username=name)
        if key is not None:
            found = found.filter(key=key)
        count, _ = found.delete()
        if not count:
            raise CommandError(f"{name!r} has no such token: `{NAME} tokens` lists them")
        self.stdout.write(f"{count} revoked.")
