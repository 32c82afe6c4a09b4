"""GETs that many ask for, before Django: out of the body cache (`api/server/listings.py`)."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from django.core.exceptions import DisallowedHost

from api.cache import Asked, Bodies
from api.problems import Forbidden, Unauthorized
from api.server import versioned
from api.server.http import Request, route_of
from api.server.listings import Listing, NotKept, Wanted, build, look, wanted
from api.server.native import Native, respond
from api.server.threads import Threads
from tagmill.errors import NotFound

VARY = "Accept, Accept-Encoding, Authorization, Cookie"
MAX_AGE = re.compile(r"(?:^|[,\s])max-age\s*=\s*\"?(\d{1,9})", re.ASCII)
FRESH = re.compile(r"(?:^|[,\s])no-(?:cache|store)(?:$|[,\s=])")


class ListingResource(Native):
    parameters = None

    def __init__(
        self, bodies: Bodies, threads: Threads, django: Any, listing: Listing, subject: bytes = b""
    ) -> None:
        super().__init__()
        self._bodies = bodies
        self._threads = threads
        self._django = django
        self._listing = listing
        self._subject = subject.decode("ascii")
        self._asked: Wanted | None = None

    def render(self, request: Request) -> Any:
        request.route = route_of(request.path)
        self._asked = wanted(self._listing, self._subject, request)
        return self._django.render(request) if self._asked is None else super().render(request)

    async def answer(self, request: Request) -> None:
        asked = self._asked
        assert asked is not None  # noqa: S101 - render has looked
        try:
            looked = await self._threads.call(look, asked)
        except (Unauthorized, Forbidden, NotFound, DisallowedHost):
            self._django.render(request)
            return
        is_exact = self._listing.is_exact
        if is_exact and self._is_current(request, versioned.etag_of(looked.name)):
            return
        coding = versioned.coding_of(request)
        age = max_age(request.joined("cache-control") or "")
        state = looked.state
        question = Asked(looked.name, coding, state.now, age, state.is_off)
        try:
            entry = await self._bodies.get(question, partial(build, asked, looked), self._threads)
        except NotKept as error:
            _pass_on(request, error.response)
            return
        headers = dict(entry.headers)
        for name, value in entry.headers:
            request.setHeader(name, value)
        if not is_exact:
            request.setHeader("Age", str(max(0, int(state.now - entry.born))))
        if not self._is_current(request, headers["ETag"]):
            versioned.send(request, entry, coding, headers["Content-Type"])

    def _is_current(self, request: Request, etag: str) -> bool:
        return versioned.is_current(request, etag, versioned.REVALIDATED, VARY)


def max_age(header: str) -> float:
    """How old an answer may be, by Cache-Control; 0 where it does not say, or forbids it."""
    lowered = header.lower()
    found = MAX_AGE.search(lowered)
    return 0.0 if found is None or FRESH.search(lowered) else float(found[1])


def _pass_on(request: Request, response: Any) -> None:
    """What Django answered, as it is."""
    for name, value in response.items():
        request.setHeader(name, value)
    respond(request, response.content, response.headers["Content-Type"], response.status_code)
