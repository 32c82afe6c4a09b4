"""manage.py serve: the API server."""

from __future__ import annotations

import os
import resource
import sys
from argparse import ArgumentParser
from importlib.util import find_spec
from typing import Any

import structlog
from django.core.management.base import BaseCommand
from django.db import connection
from pydantic import ValidationError

from api import signing
from api.server import health, logs, running, threads
from tagmill import database, program, sql
from tagmill.config import Config, load
from tagmill.errors import ConfigurationError, DatabaseUnavailable
from tagmill_wire import tracing

log = structlog.get_logger("tagmill.server")


class Command(BaseCommand):
    help = "Run the API server (TAGMILL_* settings: docs/settings.md)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--listen", metavar="ADDRESS:PORT", help="instead of TAGMILL_LISTEN")
        parser.add_argument(
            "--processes", metavar="N", help="instead of TAGMILL_PROCESSES; auto: one a core"
        )
        parser.add_argument(
            "--no-maintenance",
            action="store_true",
            help="leave the periodic tasks to another server",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        slot = running.slot()
        config = configuration(listen=options["listen"], processes=options["processes"])
        logs.configure(config.log_level, None if config.processes == 1 else slot or 0)
        start_tracing(config, slot)
        if config.oidc_issuer and find_spec("mozilla_django_oidc") is None:
            raise ConfigurationError("TAGMILL_OIDC_ISSUER: pip install 'tagmill[oidc]'")
        raise_file_limit()
        database.bound_statements(connection.settings_dict, config)
        if slot is not None:
            running.child_process(config, slot)
            return
        run_maintenance = config.maintenance and not options["no_maintenance"]
        check_database()
        signing.share(config)
        warn_of_connections(config, running.connections(config, run_maintenance))
        if config.processes == 1:
            running.alone(config, run_maintenance)
        else:
            sys.exit(running.parent(config, run_maintenance))


def start_tracing(config: Config, slot: int | None) -> None:
    """In each process that answers. Raises ConfigurationError."""
    if config.processes > 1 and slot is None:
        return
    try:
        tracing.start("tagmill-server", config.trace_url, config.trace_share)
    except tracing.TracingMissing as error:
        raise ConfigurationError(f"TAGMILL_TRACE_URL: {error}") from None


def configuration(**given: str | None) -> Config:
    """The settings, with those of the command line. Raises ConfigurationError."""
    asked: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if not asked:
        return load()
    try:
        config = Config(**asked)
    except ValidationError as error:
        found = error.errors()[0]
        name, said = str(found["loc"][0]), found["msg"].removeprefix("Value error, ")
        raise ConfigurationError(f"--{name} {asked.get(name)!r}: {said}") from None
    # Whoever asks for the settings later is told the same.
    os.environ["TAGMILL_PROCESSES"] = str(config.processes)
    load.cache_clear()
    return config


def check_database() -> None:
    """Raises ConfigurationError when the database cannot be reached or lacks a migration."""
    try:
        missing = threads.with_connection(health.unapplied_migrations)
    except DatabaseUnavailable as error:
        raise ConfigurationError(f"DATABASE_URL: {str(error.__cause__).strip()}") from None
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ConfigurationError(
            f"the database lacks migrations ({missing[0]}{more}):"
            f" run `{program.NAME} migrate` first"
        )
    connection.close()


def warn_of_connections(config: Config, needed: int) -> None:
    """Where the database has fewer connections than this server alone may want at once."""
    allowed = sql.max_connections()
    connection.close()
    if allowed < needed:
        lower = "TAGMILL_THREADS" if config.processes == 1 else "TAGMILL_PROCESSES"
        log.warning(
            f"the database's max_connections is too small: raise it, or lower {lower}",
            needed=needed,
            allowed=allowed,
        )


def raise_file_limit() -> None:
    """A waiting worker is a socket; the usual soft limit of 1,024 is for programs that select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
