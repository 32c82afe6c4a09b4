"""Traces by OpenTelemetry: one leads from a request by way of lease, fetch, evaluation and
completion to what is published. Off unless `start` is called, and then nothing is imported.

A place in a trace is the `traceparent` of W3C Trace Context: text, which goes along in headers and
in the database. `""`: there is no trace, and none begins but by `begin(..., is_root=True)`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

from tagmill_wire import __version__

T = TypeVar("T")

HEADER = "traceparent"
# A collector that does not answer costs nothing but spans.
EXPORT_SECONDS = 5.0
MAX_WAITING = 4096
FLUSH_MILLISECONDS = 2_000
SAMPLED = 1

_PLACE = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_here: ContextVar[str] = ContextVar("tagmill_trace", default="")
_provider: Any = None
_tracer: Any = None


class TracingMissing(Exception):
    """OpenTelemetry is not installed; the message says what to do."""


class Span:
    """Open until `end`. `place`: where what it causes belongs."""

    def __init__(self, span: Any) -> None:
        self._span = span
        context = span.get_span_context()
        self.place = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def end(self, *, name: str = "", error: str = "", **attributes: Any) -> None:
        """A second time it does nothing."""
        if not self._span.is_recording():
            return
        if name:
            self._span.update_name(name)
        for key, value in attributes.items():
            self._span.set_attribute(f"tagmill.{key}", value)
        if error:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end()


def start(service: str, url: str, share: float) -> None:
    """Send spans to an OTLP/HTTP collector, as http://127.0.0.1:4318; of traces that begin here
    that share. Nothing where the URL is empty. Raises TracingMissing."""
    global _provider, _tracer  # noqa: PLW0603 - one process, one provider
    if not url:
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    except ImportError:
        raise TracingMissing(
            "traces need OpenTelemetry: pip install 'tagmill[tracing]', for a worker"
            " 'tagmill-worker[tracing]'"
        ) from None
    exporter = OTLPSpanExporter(f"{url.rstrip('/')}/v1/traces", timeout=EXPORT_SECONDS)
    about = {"service.name": service, "service.version": __version__}
    _provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(share)), resource=Resource.create(about)
    )
    _provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=MAX_WAITING))
    _tracer = _provider.get_tracer("tagmill", __version__)


def stop() -> None:
    """Send what waits, as far as the time allows."""
    global _provider, _tracer  # noqa: PLW0603 - as above
    if _provider is not None:
        _provider.force_flush(FLUSH_MILLISECONDS)
        _provider.shutdown()
    _provider = _tracer = None


def is_on() -> bool:
    return _tracer is not None


def here() -> str:
    """The place that this thread, or coroutine, works at."""
    return _here.get()


def is_recorded(place: str) -> bool:
    """Whether anybody will see what is done there."""
    found = _PLACE.fullmatch(place)
    return found is not None and bool(int(found[3], 16) & SAMPLED)


def begin(
    name: str, parent: str, links: Sequence[str] = (), *, is_root: bool = False, **attributes: Any
) -> Span | None:
    """A span below `parent`; None where that is none. `is_root`: then it begins a trace. `links`:
    other places that it works for."""
    if _tracer is None or not (is_root or is_recorded(parent)):
        return None
    from opentelemetry.context import Context
    from opentelemetry.trace import Link

    found = [Link(context) for place in links if (context := _context(place)) is not None]
    named = {f"tagmill.{key}": value for key, value in attributes.items()}
    return Span(
        _tracer.start_span(name, _above(parent) or Context(), links=found, attributes=named)
    )


@contextlib.contextmanager
def span(
    name: str, parent: str, links: Sequence[str] = (), **attributes: Any
) -> Iterator[Span | None]:
    """As `begin`; what is done inside belongs to it."""
    opened = begin(name, parent, links, **attributes)
    try:
        with at(opened.place if opened else ""):
            yield opened
    except BaseException as error:
        if opened is not None:
            opened.end(error=type(error).__name__)
        raise
    if opened is not None:
        opened.end()


@contextlib.contextmanager
def at(place: str) -> Iterator[None]:
    """What is done inside belongs there."""
    token = _here.set(place)
    try:
        yield
    finally:
        _here.reset(token)


def carrying(function: Callable[..., T]) -> Callable[..., T]:
    """The function, for another thread: there it belongs where this one is now."""
    place = here()
    if not place:
        return function

    def carried(*args: Any) -> T:
        with at(place):
            return function(*args)

    return carried


def named(_: Any, __: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """A processor of structlog: the trace of a line."""
    found = _PLACE.fullmatch(_here.get())
    if found is not None:
        event.setdefault("trace_id", found[1])
    return event


def _above(place: str) -> Any:
    from opentelemetry.trace import NonRecordingSpan, set_span_in_context

    context = _context(place)
    return None if context is None else set_span_in_context(NonRecordingSpan(context))


def _context(place: str) -> Any:
    from opentelemetry.trace import SpanContext, TraceFlags

    found = _PLACE.fullmatch(place)
    if found is None:
        return None
    trace, above, flags = (int(part, 16) for part in found.groups())
    context = SpanContext(trace, above, is_remote=True, trace_flags=TraceFlags(flags))
    return context if context.is_valid else None
