"""POST /api/v1/previews/, in turns, and GET of one with `Prefer: wait=N`, held without a thread.

Django answers both: one when its client has its turn, the other when the preview is over or gone,
or the time is up.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from django.http import QueryDict
from twisted.internet.defer import Deferred, DeferredLock, DeferredSemaphore

from api.rest import previews as resource
from api.server import events, users
from api.server.http import Request, route_of
from api.server.lease import wait
from api.server.native import Native
from api.server.threads import Threads
from api.server.watch import Watch
from api.strict import refuse_unknown
from tagmill.errors import Busy, PreviewGone

T = TypeVar("T")

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
    methods: ClassVar[tuple[str, ...]] = ("POST",)

    def __init__(self, threads: Threads, django: Any, most: int) -> None:
        super().__init__(threads, django)
        self._turns = Turns(most)

    def is_native(self, request: Request) -> bool:
        return request.method == b"POST"

    async def answer(self, request: Request) -> None:
        # A stranger never takes a turn.
        client = await self._threads.call(users.somebody, *users.shown_by(request))
        await self._turns.run(client, self._answered, request)

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
            raise PreviewGone(
                "the preview was cancelled, or a newer one of the same client took its place"
            )
        request.setHeader("Preference-Applied", f"wait={seconds}")
        self._django.render(request)


def _admit(header: str, session: str, uuid: str, query: str) -> tuple[UUID, bool]:
    """The preview, and whether it is over, for who may see it; read in a thread. What Django would
    refuse is refused before any wait. Raises Unauthorized, Forbidden, NotFound, Invalid."""
    found, is_over, _ = events.admit(events.PREVIEWS, header, session, uuid)
    asked = QueryDict(query)
    refuse_unknown(asked, resource.PreviewCall.parameters, "parameter")
    resource.shown(asked)
    return found, is_over
