"""GET of a rebuild or a tag with `Prefer: wait=N`, held without a thread until the rebuild is over,
or the tag is not building any more; or until the time is up. The answer is that of who does not
wait, and made elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import unquote

from django.http import QueryDict

from api.server import events, users
from api.server.http import Request, route_of
from api.server.lease import wait
from api.server.native import Native
from api.server.threads import Threads
from api.server.watch import Found, Key, Pace, Watch
from api.strict import refuse_unknown
from tagmill.errors import NotFound
from tagmill.tags import freshness
from tagmill.tags.models import Tag

BUILDING = "building"
# What a tag's nodes bring about nobody announces.
PACE = Pace(0.05, 0.5, look_again=1.0)

# Given what shows who asks, and the text of the place: what is watched, and whether it is over. In
# a thread. Raises Unauthorized, Forbidden, NotFound.
Admit = Callable[[str, str, str], tuple[Key, bool]]


class Held(NamedTuple):
    """`answer`: of the place, who answers there."""

    watch: Watch
    admit: Admit
    answer: Callable[[bytes], Any]


class WaitingResource(Native):
    # `_admit` refuses them, after the token.
    parameters = None

    def __init__(self, held: Held, threads: Threads, most_seconds: int, place: bytes) -> None:
        super().__init__()
        self._watch = held.watch
        self._admit = held.admit
        self._threads = threads
        self._most_seconds = most_seconds
        self._fallback = held.answer(place)
        self._place = unquote(place.decode("latin-1"))

    def render(self, request: Request) -> Any:
        if request.method == b"GET" and wait(request.getHeader("prefer")) > 0:
            return super().render(request)
        # It counts as what it is, a request that nobody holds.
        request.route = route_of(request.path)
        return self._fallback.render(request)

    async def answer(self, request: Request) -> None:
        seconds = min(wait(request.getHeader("prefer")), self._most_seconds)
        query = request.uri.partition(b"?")[2].decode("latin-1")
        shown = users.shown_by(request)
        key, is_over = await self._threads.call(self._admitted, shown, query)
        if not is_over:
            await self._watch.until_over(key, seconds)
        request.setHeader("Preference-Applied", f"wait={seconds}")
        self._fallback.render(request)

    def _admitted(self, shown: users.Shown, query: str) -> tuple[Key, bool]:
        """What would be refused later is refused before any wait."""
        found = self._admit(*shown, self._place)
        refuse_unknown(QueryDict(query), (), "parameter")
        return found


def admit_to_rebuild(header: str, session: str, text: str) -> tuple[Key, bool]:
    uuid, is_over, _ = events.admit(events.REBUILDS, header, session, text)
    return uuid, is_over


def admit_to_tag(header: str, session: str, name: str) -> tuple[Key, bool]:
    users.viewer(header, session)
    found = {} if "\0" in name else read_tags([name])
    if name not in found:
        raise NotFound(f"there is no tag {name!r}")
    return name, found[name][0]


def watch_tags(names: list[Any]) -> Found:
    """One that is gone is over, too."""
    return {**dict.fromkeys(names, (True, b"")), **read_tags(names)}


def read_tags(names: list[Any]) -> Found:
    """Whether those that there are are ready, or have failed."""
    rows = list(Tag.objects.filter(name__in=names))
    states = freshness.status(rows)
    return {tag.name: (states[tag.id].state != BUILDING, b"") for tag in rows}
