"""GET of /api/v1/nodes/ as NDJSON: all nodes that the filters leave, as `nodes/import` takes them.

A thread reads and packs one chunk at a time, and the next one when the client has read the last:
whoever reads slowly holds neither a thread nor a connection to the database. Everything else at
this address is answered elsewhere.
"""

from __future__ import annotations

from typing import Any

from django.http import QueryDict

from api.packing import Packer
from api.renderers import NDJSON
from api.rest import filters, node_filters
from api.rest.nodes import INCLUDE, PROBES
from api.roles import Role
from api.server import users, versioned
from api.server.http import Request, route_of
from api.server.native import Native
from api.server.stream import Paced
from api.server.threads import Threads
from api.strict import refuse_unknown
from tagmill.errors import Invalid
from tagmill.flows import exports
from tagmill.tags import places
from tagmill.tags.places import Filters

JSON = "application/json"
VARY = "Accept, Accept-Encoding, Authorization, Cookie"
PARAMETERS = ("tag", "not_tag", "include", *(each.name for each in node_filters.FILTERS))
FILTERS = (*node_filters.FILTERS, INCLUDE)


class ExportResource(Native):
    # Looked at in a thread, after the token.
    parameters = None

    def __init__(self, threads: Threads, fallback: Any) -> None:
        super().__init__()
        self._threads = threads
        self._fallback = fallback

    def render(self, request: Request) -> Any:
        taken = {item.partition(";")[0].strip() for item in _accepted(request).split(",")}
        if request.method in (b"GET", b"HEAD") and NDJSON in taken and JSON not in taken:
            return super().render(request)
        request.route = route_of(request.path)
        return self._fallback.render(request)

    async def answer(self, request: Request) -> None:
        query = request.uri.partition(b"?")[2].decode("latin-1")
        wanted, with_documents = await self._threads.call(admit, *users.shown_by(request), query)
        packer = Packer(versioned.coding_of(request))

        def read(after: int) -> tuple[bytes, int | None]:
            found = exports.chunk(wanted, after, with_documents=with_documents)
            return packer.add(found.lines, is_last=found.after is None), found.after

        # Whatever is wrong is said before the answer begins.
        data, after = await self._threads.call(read, places.BEFORE_ALL)
        request.setHeader("Content-Type", NDJSON)
        request.setHeader("Cache-Control", "no-store")
        request.setHeader("Vary", VARY)
        if packer.coding:
            request.setHeader("Content-Encoding", packer.coding)
        if request.method == b"HEAD":
            request.finish()
            return
        paced = Paced(request)
        request.write(data)
        while after is not None:
            await paced.has_room()
            data, after = await self._threads.call(read, after)
            request.write(data)
        paced.finish()


def _accepted(request: Request) -> str:
    return (request.joined("accept") or "").lower()


def admit(header: str, session: str, query: str) -> tuple[Filters, bool]:
    """What is asked for, and whether with documents, for who may see it; in a thread. Raises
    Unauthorized, Forbidden, NotFound, Invalid, UnknownField."""
    scope = users.scope(Role.VIEWER, header, session)
    given = QueryDict(query)
    refuse_unknown(given, PARAMETERS, "parameter")
    asked = filters.asked(FILTERS, given.dict())
    include = asked.get("include", PROBES)
    if include != PROBES:
        raise Invalid(
            "tags come with JSON alone: a line is what `nodes/import` takes", field="include"
        )
    return node_filters.of_list(asked, given, scope), "include" in asked
