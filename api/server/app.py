"""The API server put together: pools, routes, listener, maintenance, and the order of its end."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog
from django.core.wsgi import get_wsgi_application
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.error import CannotListenError
from twisted.internet.task import LoopingCall
from twisted.web.wsgi import WSGIResource

from api import metrics
from api.cache import Bodies, controls
from api.cache.reports import Reports
from api.cache.shared import Shared
from api.limits import DOCUMENT, IMAGE, LARGE, LEASE, SMALL, BodyLimit
from api.server import (
    batches,
    completion,
    dictionaries,
    documents,
    expression_sets,
    feed,
    health,
    images,
    imports,
    lease,
    pools,
    session,
    users,
    waits,
)
from api.server.admission import Admission
from api.server.batches import BatchResource, Slice
from api.server.broker import WAKE, Broker, Poll, Taken
from api.server.child import Place
from api.server.completion import CompletionResource
from api.server.dictionaries import DictionaryResource
from api.server.documents import DocumentResource
from api.server.events import PREVIEWS, REBUILDS, EventsResource, Kind
from api.server.exports import ExportResource
from api.server.expression_sets import ExpressionSetResource
from api.server.feed import ChangesResource, Together, Waiting
from api.server.front import ListingResource
from api.server.health import Health, Metrics, Ready
from api.server.http import Caps, Request, Route, Site
from api.server.images import ImageResource
from api.server.imports import Import, ImportResource
from api.server.lease import LeaseResource
from api.server.listener import Listener
from api.server.listening import BACKLOG, cannot_listen
from api.server.listings import LISTINGS
from api.server.operations import Operation
from api.server.previews import MAX_AT_ONCE, PreviewResource, PreviewsResource, beginning
from api.server.session import SessionResource
from api.server.sharing import SharedPort
from api.server.threads import Threads
from api.server.waits import Held, WaitingResource
from api.server.watch import Watch
from tagmill import caches
from tagmill.config import Config
from tagmill.flows import maintenance
from tagmill_wire.messages import TOKEN_SCHEME, LeaseAnswer

log = structlog.get_logger("tagmill.server")

# Threads that still run this long after the drain are left behind: what they wait for may never
# come.
STOP_SECONDS = 5.0
# How old the gauges are that another process shows of this one.
REPORT_SECONDS = 0.5
WORK, PROGRESS, PREVIEW = "tagmill_work", "tagmill_progress", "tagmill_preview"


class Server:
    """`start` listens, `drain` ends everything in order; the reactor is the caller's to run.
    `place`: that of a process among others, which `config` is the part of."""

    def __init__(
        self, reactor: Any, config: Config, run_maintenance: bool, place: Place | None = None
    ) -> None:
        self._reactor = reactor
        self._config = config
        self._place = place
        made = {name: Threads(reactor, name, most) for name, most in pools.sizes(config).items()}
        self._pools = tuple(made.values())
        self._rest, self._native = made["rest"], made["native"]
        self._heartbeats, self._completions = made["heartbeat"], made["complete"]
        self._importers, self._uploaders = made["import"], made["upload"]
        self._imagers = made["image"]
        self._uploads = documents.uploads(reactor, self._uploaders)
        self._broker = Broker(reactor, self._take, self._give_back, config.part(WAKE))
        self._rebuilds, self._previews = self._watch(REBUILDS), self._watch(PREVIEWS)
        self._tags = Watch(reactor, waits.PACE, partial(self._native.call, waits.watch_tags))
        self._watches = (self._rebuilds, self._previews, self._tags)
        self._changes = Waiting(reactor)
        self._ready = Ready(self._native)
        self._bodies = self._make_bodies()
        self._reports = Reports(reactor, self._native, self._bodies)
        channels = (WORK, PROGRESS, PREVIEW, controls.CHANNEL)
        self._listener = Listener(reactor, channels, self._heard, self._look_again)
        self._stop_maintenance = threading.Event()
        self._maintenance = threading.Thread(
            target=maintenance.run_forever,
            args=(self._stop_maintenance,),
            name="maintenance",
            daemon=True,
        )
        self._run_maintenance = run_maintenance
        self.has_ended = True
        django: Any = get_wsgi_application()
        wsgi: Any = WSGIResource(reactor, self._rest.pool, django)
        self.routes = [*self._routes(), *self._keeping(django), *self._imports(wsgi)]
        self.routes.append(self._document(wsgi))
        listings = self._listings(wsgi)
        self.routes += [*self._asking(wsgi, django), *self._watching()]
        self.routes += [self._export(wsgi, listings), *self._waiting(wsgi, listings), *listings]
        # Behind proxies, every connection is of a proxy's address.
        of_address = None if config.trusted_proxies else config.connections_per_address
        caps = Caps(config.connections, of_address, config.unread_bytes)
        self._site = Site(
            reactor,
            self.routes,
            wsgi,
            caps=caps,
            intake=self._intake,
            gate=self._gate,
            slot=None if place is None else place.slot,
            origins=[each for each in config.cors_origins.split(",") if each],
        )
        self._port: Any = None
        self._gauges: dict[Any, Callable[[], int]] = {
            metrics.PARKED_POLLS: lambda: self._broker.parked,
            metrics.WAITING_UPLOADS: lambda: self._uploads.waiting,
            metrics.CONNECTIONS: lambda: self._site.connections,
            metrics.UNREAD_BYTES: lambda: self._site.unread.total,
            metrics.BODY_BYTES: lambda: self._bodies.store.size,
        }
        self._reporting = LoopingCall(self._report)
        self._reporting.clock = reactor

    def start(self) -> tuple[str, int]:
        """The address that it listens on. Raises ConfigurationError when that is taken."""
        self._port = self._listen()
        metrics.PROCESSES.set(1)
        if self._place is None:
            for gauge, read in self._gauges.items():
                gauge.set_function(read)
        else:
            self._reporting.start(REPORT_SECONDS)
        for pool in self._pools:
            pool.start()
        self._broker.start()
        for watch in self._watches:
            watch.start()
        self._changes.start()
        self._listener.start()
        self._reports.start()
        if self._run_maintenance:
            self.lead()
        self._reactor.addSystemEventTrigger("before", "shutdown", self._drain)
        self._reactor.addSystemEventTrigger("after", "shutdown", self._stop)
        address = self._port.getHost()
        return address.host, address.port

    def lead(self) -> None:
        """Run the periodic tasks from now on."""
        if not (self._maintenance.is_alive() or self._stop_maintenance.is_set()):
            self._maintenance.start()

    def _listen(self) -> Any:
        if self._place is not None:
            return SharedPort(self._reactor, self._place.listener, self._site, self._place.slot)
        host, port = self._config.listen_address
        try:
            return self._reactor.listenTCP(port, self._site, BACKLOG, host)
        except CannotListenError as error:
            raise cannot_listen(self._config.listen, error.socketError) from None

    def _report(self) -> None:
        for gauge, read in self._gauges.items():
            gauge.set(read())

    def _drain(self) -> Deferred[Any]:
        """Accept nothing new, let waiting clients go, finish what runs within `drain_seconds`."""
        log.info("draining", requests=len(self._site.in_flight))
        self._ready.is_draining = True
        self._stop_maintenance.set()
        self._listener.stop()
        self._reports.stop()
        closed = self._port.stopListening()
        self._broker.drain()
        for watch in self._watches:
            watch.drain()
        self._changes.drain()
        idle = self._site.drain()
        idle.addTimeout(
            self._config.drain_seconds,
            self._reactor,
            lambda *_: log.warning("requests cut off", requests=len(self._site.in_flight)),
        )
        return DeferredList([closed, idle], consumeErrors=True)

    def _stop(self) -> None:
        if self._reporting.running:
            self._reporting.stop()
        # Whoever gives requests less time to finish does not wait longer for what is left of them.
        deadline = time.monotonic() + min(STOP_SECONDS, self._config.drain_seconds)
        # All of them: one that is stuck takes no time from the others.
        for pool in self._pools:
            pool.stop()
        stuck = [pool.name for pool in self._pools if not pool.join(deadline - time.monotonic())]
        self.has_ended = not stuck
        log.info("stopped", **({"stuck": stuck} if stuck else {}))

    def _routes(self) -> list[Route]:
        limits = Slice("", None, None, self._config.batch_nodes, self._config.batch_bytes)
        most_wait = self._config.poll_seconds
        alive, ready = Health(), self._ready
        scrape = Metrics(self._native, self._config.metrics_token)
        return [
            _native(
                "lease",
                lease.OPERATION,
                lambda: LeaseResource(self._broker, most_wait),
                LEASE,
            ),
            _native(
                "batch",
                batches.OPERATION,
                partial(BatchResource, self._native, self._bodies, limits),
            ),
            _native(
                "expression_set",
                expression_sets.OPERATION,
                partial(ExpressionSetResource, self._native, self._bodies),
            ),
            _native(
                "dictionary",
                dictionaries.OPERATION,
                partial(DictionaryResource, self._native, self._bodies),
            ),
            _native("image", images.GET, partial(ImageResource, self._imagers), IMAGE),
            _native(
                "events",
                REBUILDS.operation,
                partial(EventsResource, REBUILDS, self._rebuilds, self._native),
            ),
            _native(
                "events",
                PREVIEWS.operation,
                partial(EventsResource, PREVIEWS, self._previews, self._native),
            ),
            _native("healthz", health.ALIVE, lambda: alive),
            _native("readyz", health.READY, lambda: ready),
            _native("metrics", health.METRICS, lambda: scrape),
        ]

    def _keeping(self, django: Any) -> list[Route]:
        """What keeps leases alive, each on a pool of its own."""
        beat: Any = WSGIResource(self._reactor, self._heartbeats.pool, django)
        return [
            _route("heartbeat", "/api/v1/workers/(?:heartbeat|fail)", lambda: beat),
            _native(
                "complete",
                completion.OPERATION,
                lambda: CompletionResource(self._completions, self._broker),
                LARGE,
            ),
        ]

    def _imports(self, fallback: Any) -> list[Route]:
        # Everything but POST is Django's, whose view declares the limit of a body.
        return [
            _native("import", kind.operation, lambda: ImportResource(fallback), None)
            for kind in imports.KINDS
        ]

    def _document(self, django: Any) -> Route:
        make = partial(DocumentResource, self._uploads, django)
        return _native("nodes", documents.OPERATION, make, DOCUMENT)

    def _asking(self, wsgi: Any, django: Any) -> list[Route]:
        begins: Any = WSGIResource(self._reactor, self._rest.pool, beginning(django))
        most_wait = self._config.poll_seconds
        made = PreviewsResource(
            *(self._previews, self._native, wsgi, begins),
            most_seconds=most_wait,
            most=self._config.part(MAX_AT_ONCE),
        )
        held = (self._previews, self._native, wsgi, most_wait)
        return [
            _route("previews", "/api/v1/previews", lambda: made),
            _route(
                "preview", "/api/v1/previews/([0-9a-fA-F-]{36})", partial(PreviewResource, *held)
            ),
        ]

    def _watching(self) -> list[Route]:
        held = (self._reactor, self._native, Together(self._native), self._changes)
        most_wait = self._config.poll_seconds
        return [
            _native("changes", feed.OPERATION, lambda: ChangesResource(*held, most_wait)),
            _native("events", session.OPERATION, lambda: SessionResource(*held)),
        ]

    def _listings(self, django: Any) -> list[Route]:
        if not self._config.body_cache_bytes and not caches.has_bodies(self._config):
            # Nothing would be kept: Django answers as it does elsewhere.
            return []
        return [
            _route(
                listing.resource,
                listing.path,
                partial(ListingResource, self._bodies, self._rest, django, listing),
            )
            for listing in LISTINGS
        ]

    def _export(self, django: Any, listings: list[Route]) -> Route:
        """Pages of nodes are answered as they are elsewhere."""
        path = "/api/v1/nodes"
        pages = (each.make for each in listings if each.pattern.fullmatch(path.encode()))
        page = next(pages, lambda: django)
        return _route("export", path, lambda: ExportResource(self._native, page()))

    def _waiting(self, django: Any, listings: list[Route]) -> list[Route]:
        """Rebuilds and tags that somebody waits for are answered as they are elsewhere."""
        place = "/api/v1/rebuilds/([0-9a-fA-F-]{36})"
        one = (each.make for each in listings if each.pattern.pattern == f"{place}/?".encode())
        rebuild = next(one, lambda _: django)
        held = {
            place: Held(self._rebuilds, waits.admit_to_rebuild, rebuild),
            "/api/v1/tags/([^/]+)": Held(self._tags, waits.admit_to_tag, lambda _: django),
        }
        rest = (self._native, self._config.poll_seconds)
        return [
            _route("wait", path, partial(WaitingResource, each, *rest))
            for path, each in held.items()
        ]

    def _make_bodies(self) -> Bodies:
        config = self._config
        shared = Shared(config.cache_item_bytes) if caches.has_bodies(config) else None
        return Bodies(self._reactor, config.body_cache_bytes, config.status_seconds, shared)

    def _watch(self, kind: Kind) -> Watch:
        return Watch(self._reactor, kind.pace, partial(self._native.call, kind.read))

    def _intake(self, request: Request) -> Import | None:
        kind = imports.kind_of(request.path) if request.method == b"POST" else None
        if kind is None:
            return None
        line_bytes = self._config.import_line_bytes
        return Import(request, kind, self._native, self._importers, line_bytes)

    def _gate(self, request: Request) -> Admission:
        """The sender of a large body is known, or it is not read."""
        header, session = users.shown_by(request)
        is_worker = header.partition(" ")[0].lower() == TOKEN_SCHEME.lower()
        pool = self._completions if is_worker else self._native
        return Admission(request, pool.call(users.known, header, session))

    def _take(self, poll: Poll) -> Deferred[Taken]:
        return self._native.call(lease.take, poll)

    def _give_back(self, poll: Poll, answer: LeaseAnswer) -> Deferred[None]:
        return self._native.call(lease.give_back, poll, answer)

    def _heard(self, channel: str, payload: str) -> None:
        self._changes.changed()
        if channel == PROGRESS:
            self._rebuilds.changed()
            self._tags.changed()
            return
        if channel == PREVIEW:
            self._previews.changed()
            return
        if channel == controls.CHANNEL:
            controls.heard(payload, self._bodies.store)
            return
        try:
            work = json.loads(payload)
            self._broker.work_arrived(work.get("cluster"), work.get("partitions") or ())
        except (ValueError, AttributeError, TypeError):
            log.warning("unreadable notification", channel=channel, payload=payload[:200])
            self._broker.work_arrived(None)

    def _look_again(self) -> None:
        self._broker.look_again()
        for watch in self._watches:
            watch.changed()
        self._changes.changed()


def _native(name: str, operation: Operation, make: Any, limit: BodyLimit | None = SMALL) -> Route:
    return Route(name, operation.pattern, make, limit)


def _route(name: str, path: str, make: Any) -> Route:
    return Route(name, re.compile(path.encode() + b"/?"), make)
