"""manage.py serve: the API server."""

from __future__ import annotations

import logging
import os
import resource
from argparse import ArgumentParser
from typing import Any

import structlog
from django.core.management.base import BaseCommand
from django.db import connection
from pydantic import ValidationError

from api.server import health, logs, threads
from tagmill import database, program, sql
from tagmill.config import Config, load
from tagmill.errors import ConfigurationError, DatabaseUnavailable

log = structlog.get_logger("tagmill.server")


class Command(BaseCommand):
    help = "Run the API server (TAGMILL_* settings: docs/settings.md)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--listen", metavar="ADDRESS:PORT", help="instead of TAGMILL_LISTEN")
        parser.add_argument(
            "--no-maintenance",
            action="store_true",
            help="leave the periodic tasks to another server",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        config = configuration(options["listen"])
        logs.configure(config.log_level)
        database.bound_statements(connection.settings_dict, config)
        check_database()
        # Both start things when they are imported: the reactor, and what the domain registers.
        from twisted.internet import reactor

        from api.server.app import Server

        run: Any = reactor
        raise_file_limit()
        server = Server(run, config, config.maintenance and not options["no_maintenance"])
        warn_of_connections(server.connections)
        host, port = server.start()
        run.callWhenRunning(
            log.info, "ready", url=f"http://{bracketed(host)}:{port}", pid=os.getpid()
        )
        run.run()
        if not server.has_ended:
            # Python would wait for the threads.
            logging.shutdown()
            os._exit(0)


def configuration(listen: str | None) -> Config:
    """The settings, with the command line's address. Raises ConfigurationError."""
    config = load()
    if listen is None:
        return config
    try:
        return Config(listen=listen)
    except ValidationError as error:
        said = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigurationError(f"--listen {listen!r}: {said}") from None


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


def warn_of_connections(needed: int) -> None:
    """Where the database has fewer connections than this server alone may want at once."""
    allowed = sql.max_connections()
    connection.close()
    if allowed < needed:
        log.warning(
            "the database's max_connections is too small: raise it, or lower TAGMILL_THREADS",
            needed=needed,
            allowed=allowed,
        )


def raise_file_limit() -> None:
    """A waiting worker is a socket; the usual soft limit of 1,024 is for programs that select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
