"""POST /api/v1/previews/, in turns, and GET of one; with `Prefer: wait=N` both are held without a
thread.

Django answers: POST when its client has its turn, GET when the preview is over or gone, or the time
is up. A POST that waits is begun by Django, and answered here, in one request what would take two.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from django.http import QueryDict
from twisted.internet.defer import Deferred, DeferredLock, DeferredSemaphore

from api import idempotency
from api.encoding import dumps
from api.limits import RETRY_SECONDS
from api.rest import previews as resource
from api.server import events, users
from api.server.captured import Captured
from api.server.http import Request, route_of
from api.server.lease import wait
from api.server.native import Native, respond_packed
from api.server.threads import Threads
from api.server.watch import Watch
from api.strict import refuse_unknown
from tagmill.errors import Busy, NotFound, PreviewGone

T = TypeVar("T")
ACCEPTED = 202

# Previews that are stored at the same moment by all processes of a server; and in each of them,
# clients that have a turn or wait for it, and the turns that one of them may wait for.
MAX_AT_ONCE = 4
MAX_CLIENTS = 1000
MAX_WAITING = 16


class Turns:
    """One call at a time for each client, and few for all of them. On the reactor thread alone.

    While a preview is stored, it holds the jobs of all partitions, and no worker is given any of
    them: ten at once would leave hardly a gap. One that is stuck keeps its client's others waiting,
    and nobody else's. Two processes that have a client's previews meet at a lock of the database.
    """

    def __init__(self, most: int = MAX_AT_ONCE) -> None:
        self._locks: dict[int, DeferredLock] = {}
        self._all = DeferredSemaphore(most)

    def __len__(self) -> int:
        return len(self._locks)

    async def run(self, client: int, call: Callable[..., Deferred[T]], *args: Any) -> T:
        """Raises Busy when too many wait already."""
        if client not in self._locks and len(self._locks) >= MAX_CLIENTS:
            raise Busy("many previews are being asked for: try again", retry_after=1)
        lock = self._locks.setdefault(client, DeferredLock())
        if len(lock.waiting) >= MAX_WAITING:
            raise Busy("your other previews come first: try again", retry_after=1)
        try:
            answer: T = await lock.run(self._all.run, call, *args)
        finally:
            if not (lock.locked or lock.waiting):
                self._locks.pop(client, None)
        return answer


class DjangosOwn(Native):
    """Django answers in the end, and looks at the parameters."""

    parameters = None

    def __init__(self, threads: Threads, django: Any) -> None:
        super().__init__()
        self._threads = threads
        self._django = django

    @abc.abstractmethod
    def is_native(self, request: Request) -> bool:
        """Whether anything comes before Django's answer."""

    def render(self, request: Request) -> Any:
        if self.is_native(request):
            return super().render(request)
        # It counts as what it is, a request that nobody holds.
        request.route = route_of(request.path)
        return self._django.render(request)


class PreviewsResource(DjangosOwn):
    """`beginning`: Django, which leaves away what the preview says while nothing is evaluated."""

    methods: ClassVar[tuple[str, ...]] = ("POST",)

    def __init__(
        self,
        watch: Watch,
        threads: Threads,
        django: Any,
        beginning: Any,
        *,
        most_seconds: int,
        most: int,
    ) -> None:
        super().__init__(threads, django)
        self._watch = watch
        self._beginning = beginning
        self._most_seconds = most_seconds
        self._turns = Turns(most)

    def is_native(self, request: Request) -> bool:
        return request.method == b"POST"

    async def answer(self, request: Request) -> None:
        # A stranger never takes a turn.
        client = await self._threads.call(users.somebody, *users.shown_by(request))
        # An answer that is kept for a second request is Django's own.
        is_kept = request.getHeader(idempotency.HEADER) is not None
        seconds = 0 if is_kept else min(wait(request.getHeader("prefer")), self._most_seconds)
        if not seconds:
            await self._turns.run(client, self._answered, request)
            return
        request.route = "preview"
        begun = Captured(request)
        await self._turns.run(client, begun.rendered, self._beginning)
        if begun.code != ACCEPTED:
            begun.pass_on()
            return
        await self._held(request, begun, seconds)

    async def _held(self, request: Request, begun: Captured, seconds: int) -> None:
        (place,) = begun.responseHeaders.getRawHeaders("Location", [])
        base, _, name = place.rpartition("/")
        uuid = UUID(name)
        if await self._watch.until_over(uuid, seconds) == events.GONE[1]:
            raise gone()
        query = request.uri.partition(b"?")[2].decode("latin-1")
        status, body = await self._threads.call(_found, uuid, base, query)
        begun.pass_headers_on()
        request.setHeader("Preference-Applied", f"wait={seconds}")
        if status == ACCEPTED:
            request.setHeader("Retry-After", str(RETRY_SECONDS))
        respond_packed(request, body, "application/json", status)

    def _answered(self, request: Request) -> Deferred[None]:
        request.route = route_of(request.path)
        self._django.render(request)
        return request.notifyFinish()


class PreviewResource(DjangosOwn):
    def __init__(
        self,
        watch: Watch,
        threads: Threads,
        django: Any,
        most_seconds: int,
        uuid: bytes,
    ) -> None:
        super().__init__(threads, django)
        self._watch = watch
        self._most_seconds = most_seconds
        self._uuid = uuid.decode()

    def is_native(self, request: Request) -> bool:
        return request.method == b"GET" and wait(request.getHeader("prefer")) > 0

    async def answer(self, request: Request) -> None:
        seconds = min(wait(request.getHeader("prefer")), self._most_seconds)
        query = request.uri.partition(b"?")[2].decode("latin-1")
        header, session = users.shown_by(request)
        uuid, is_over = await self._threads.call(_admit, header, session, self._uuid, query)
        if not is_over and await self._watch.until_over(uuid, seconds) == events.GONE[1]:
            raise gone()
        request.setHeader("Preference-Applied", f"wait={seconds}")
        self._django.render(request)


def beginning(application: Any) -> Any:
    """The WSGI application, which begins previews and says no more of those that are evaluated."""

    def call(environ: dict[str, Any], start_response: Any) -> Any:
        return application({**environ, resource.BEGINS: True}, start_response)

    return call


def gone() -> PreviewGone:
    return PreviewGone(
        "the preview was cancelled, or a newer one of the same client took its place"
    )


def _found(uuid: UUID, base: str, query: str) -> tuple[int, bytes]:
    """The status and the body, in a thread. Raises PreviewGone; Django has looked at the query."""
    try:
        status, body = resource.answer(
            uuid, resource.Asked(base, *resource.shown(QueryDict(query)))
        )
    except NotFound:
        raise gone() from None
    return status, dumps(body)


def _admit(header: str, session: str, uuid: str, query: str) -> tuple[UUID, bool]:
    """The preview, and whether it is over, for who may see it; read in a thread. What Django would
    refuse is refused before any wait. Raises Unauthorized, Forbidden, NotFound, Invalid."""
    found, is_over, _ = events.admit(events.PREVIEWS, header, session, uuid)
    asked = QueryDict(query)
    refuse_unknown(asked, resource.PreviewCall.parameters, "parameter")
    resource.shown(asked)
    return found, is_over
