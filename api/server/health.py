"""/healthz, /readyz and /metrics."""

from __future__ import annotations

import hmac
import ipaddress
import pkgutil
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.apps import apps
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from api import metrics, problems
from api.server.http import Request
from api.server.native import Native, credentials, respond, respond_packed
from api.server.operations import JSON, Answer, Content, Operation
from api.server.threads import Threads
from tagmill import program, sql
from tagmill.errors import DatabaseUnavailable

ALIVE = Operation(
    name="healthz",
    method="get",
    path="/healthz",
    tag="server",
    schemes=(),
    summary="Say whether the server lives",
    description="Whether the process is alive: no database is asked.",
    answers={200: Answer("It is.", Content(JSON, {"type": "object"}, {"status": "alive"}))},
)
READY = Operation(
    name="readyz",
    method="get",
    path="/readyz",
    tag="server",
    schemes=(),
    summary="Say whether the server is ready",
    errors=("not_migrated",),
    description="Whether the database answers and has every migration. 503 otherwise, also while "
    "the server shuts down.",
    answers={200: Answer("It does.", Content(JSON, {"type": "object"}, {"status": "ready"}))},
)
METRICS = Operation(
    name="metrics",
    method="get",
    path="/metrics",
    tag="server",
    schemes=(),
    summary="Read the metrics",
    errors=("unauthorized", "forbidden"),
    description="Metrics for Prometheus. `Authorization: Bearer` with the token of "
    "TAGMILL_METRICS_TOKEN; where none is set, clients on the same machine may read them.",
    answers={200: Answer("The metrics.", Content("text/plain", {"type": "string"}))},
)
FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")


class Health(Native):
    """The process is alive: no database is asked."""

    parameters = None

    async def answer(self, request: Request) -> None:
        respond(request, b'{"status":"alive"}')


class Ready(Native):
    """The database answers and has every migration; 503 otherwise, also while draining."""

    parameters = None

    def __init__(self, threads: Threads) -> None:
        super().__init__()
        self._threads = threads
        self._is_migrated = False
        self.is_draining = False

    async def answer(self, request: Request) -> None:
        if self.is_draining:
            raise DatabaseUnavailable("this server is shutting down")
        if self._is_migrated:
            await self._threads.call(sql.ask)
        elif missing := await self._threads.call(unapplied_migrations):
            raise NotMigrated(f"{len(missing)} migrations are missing: run {program.NAME} migrate")
        self._is_migrated = True
        respond(request, b'{"status":"ready"}')


class NotMigrated(DatabaseUnavailable):
    code = "not_migrated"


class Metrics(Native):
    """Metrics for whoever knows the token; if none is set, for clients on this machine alone."""

    parameters = None

    def __init__(self, threads: Threads, token: str) -> None:
        super().__init__()
        self._threads = threads
        self._token = token

    async def answer(self, request: Request) -> None:
        if self._token:
            given = credentials(request, "Bearer")
            if not hmac.compare_digest(given.encode("latin-1"), self._token.encode()):
                raise problems.Unauthorized("the metrics token is wrong", "Bearer")
        elif not is_local(request):
            raise problems.Forbidden("set TAGMILL_METRICS_TOKEN to read metrics from elsewhere")
        body = await self._threads.call(metrics.exposition)
        respond_packed(request, body, metrics.CONTENT_TYPE)


def is_local(request: Any) -> bool:
    """Whether a request comes from this machine, and not through a proxy that runs on it."""
    if any(request.getHeader(name) for name in FORWARDED):
        return False
    try:
        return ipaddress.ip_address(request.getClientAddress().host).is_loopback
    except (ValueError, AttributeError):
        return False


def unapplied_migrations() -> list[str]:
    """The migrations that the database lacks. Call it in a thread or before the server runs."""
    # Django imports every migration to say in which order they come. Where none is missing their
    # names are enough, which saves each start of a server a tenth of its CPU time.
    if migrations() <= MigrationRecorder(connection).applied_migrations().keys():
        return []
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return [f"{migration.app_label}.{migration.name}" for migration, _ in plan]


def migrations() -> set[tuple[str, str]]:
    """The app and the name of each migration there is, by the names of the files."""
    found: set[tuple[str, str]] = set()
    for config in apps.get_app_configs():
        package, _ = MigrationLoader.migrations_module(config.label)
        if package is None or find_spec(package) is None:
            continue
        folder = getattr(import_module(package), "__path__", ())
        names = (module.name for module in pkgutil.iter_modules(folder) if not module.ispkg)
        found |= {(config.label, name) for name in names if name[0] not in "_~"}
    return found
