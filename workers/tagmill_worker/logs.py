"""One JSON object a line on standard error, from structlog and Twisted.

Each line says which process it is of: `pid`, and `worker`, the server's name for it, as soon as
there is one. A line that cannot be written, as where the disk is full, is counted and left out:
nothing in the worker fails by its log.
"""

from __future__ import annotations

import logging
import os
from typing import Any, TextIO, cast

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger
from twisted.logger import LogEvent, LogLevel, formatEvent, globalLogBeginner

from tagmill_wire import tracing

LEVELS = {
    LogLevel.debug: logging.DEBUG,
    LogLevel.info: logging.INFO,
    LogLevel.warn: logging.WARNING,
    LogLevel.error: logging.ERROR,
    LogLevel.critical: logging.CRITICAL,
}


class Stream:
    """Standard error for whole lines, unbuffered, which raises nothing. `lost` counts them."""

    def __init__(self, descriptor: int = 2) -> None:
        self.lost = 0
        self._descriptor = descriptor

    def write(self, line: str) -> None:
        data = line.encode(errors="replace")
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            self.lost += 1

    def flush(self) -> None:
        """Nothing is kept back."""


STREAM = Stream()
_identity: dict[str, Any] = {}


def identify(**fields: Any) -> None:
    """Add these fields to every line from now on."""
    _identity.update(fields)


def configure(level: int) -> None:
    """Set up the log of this process, once. Twisted's own lines are shown from warnings up."""
    processors: list[Processor] = [
        structlog.stdlib.add_log_level,
        _identified,
        tracing.named,
        _without_nothing,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(serializer=_dumps),
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, STREAM)),
        cache_logger_on_first_use=True,
    )
    observer: Any = _twisted
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False)


def _identified(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    return {"pid": os.getpid(), **_identity, **event}


def _without_nothing(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    if event.get("exc_info", 0) is None:
        del event["exc_info"]
    return event


def _twisted(event: LogEvent) -> None:
    level = LEVELS.get(event.get("log_level", LogLevel.info), logging.INFO)
    if level < logging.WARNING:
        return
    failure = event.get("log_failure")
    text = formatEvent(event) or (failure.getErrorMessage() if failure else "")
    cause = failure.getTraceback() if failure else None
    log = structlog.get_logger()
    if cause:
        log.log(level, text, action="twisted", exception=cause)
    else:
        log.log(level, text, action="twisted")


def _dumps(event: Any, **_: Any) -> str:
    return orjson.dumps(event, default=str).decode()
