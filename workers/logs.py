"""One JSON object a line on standard error, from structlog and Twisted."""

from __future__ import annotations

import logging
import sys
from typing import Any

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger
from twisted.logger import LogEvent, LogLevel, formatEvent, globalLogBeginner

LEVELS = {
    LogLevel.debug: logging.DEBUG,
    LogLevel.info: logging.INFO,
    LogLevel.warn: logging.WARNING,
    LogLevel.error: logging.ERROR,
    LogLevel.critical: logging.CRITICAL,
}


def configure(level: int) -> None:
    """Of this process, once. Twisted's own are shown from warnings up."""
    processors: list[Processor] = [
        structlog.stdlib.add_log_level,
        _without_nothing,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(serializer=_dumps),
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    observer: Any = _twisted
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False)


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
