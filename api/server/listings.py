"""GETs that many ask for, out of the body cache: which they are, and what each is exact by.

Django's views build the bodies, one snapshot of the database for a body and its revision; so each
address has one implementation, and whatever is out of the ordinary is Django's to answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any
from urllib.parse import parse_qs

import zstandard
from django.core.handlers.wsgi import WSGIRequest
from django.urls import resolve

from api import etags
from api.cache import keyspaces
from api.cache.controls import State, state
from api.cache.entry import ZSTD, ZSTD_LEVEL, Entry, Name
from api.cache.keyspaces import Keyspace
from api.renderers import NDJSON
from api.server import users, versioned
from api.server.http import Request, route_of
from tagmill import sql
from tagmill.tags import revisions

JSON = "application/json"
# What a page shows of nodes, and by what they are chosen, all in the nodes themselves or their
# clusters; a parameter that is not here is Django's to answer.
PAGES = frozenset({"limit", "after", "begin", "count", "order"})
FILTERS = frozenset({"cluster", "kind", "hostname", "hostname_prefix", "q", "text"})
CHOSEN = PAGES | FILTERS
# What the cache says itself, or what belongs to one answer.
OWN = {"etag", "cache-control", "vary", "content-length", "x-request-id"}
# What the views see of a request's headers.
PASSED = ("host", "x-forwarded-proto")

Query = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Listing:
    """`path`: of the address, whose group is the subject, where it has one. `parameters`: those
    that the revision covers; None for a status, which has none. `tags`: the names of the tags that
    it is about."""

    keyspace: Keyspace
    path: str
    parameters: frozenset[str] | None = None
    tags: Callable[[str, Query], Sequence[str]] = lambda subject, query: ()
    media: tuple[str, ...] = (JSON,)

    @property
    def is_exact(self) -> bool:
        return self.parameters is not None

    @property
    def resource(self) -> str:
        """What its requests count under in the metrics, as they do where Django answers."""
        return route_of(self.path.encode())


def _filtered(subject: str, query: Query) -> Sequence[str]:
    return (*query.get("tag", ()), *query.get("not_tag", ()))


LISTINGS = (
    Listing(
        keyspaces.TAG_NODES,
        r"/api/v1/tags/([A-Za-z0-9_-]{1,256})/nodes",
        CHOSEN,
        tags=lambda subject, query: (subject,),
        media=(JSON, NDJSON),
    ),
    Listing(
        keyspaces.TAG_NODES,
        r"/api/v1/tags/([A-Za-z0-9_-]{1,256})/members",
        FILTERS,
        tags=lambda subject, query: (subject,),
    ),
    Listing(keyspaces.NODES, "/api/v1/nodes", CHOSEN | {"tag", "not_tag"}, tags=_filtered),
    Listing(keyspaces.NODES, "/api/v1/places", FILTERS | {"tag", "not_tag"}, tags=_filtered),
    Listing(keyspaces.TAGS, "/api/v1/tags"),
    Listing(keyspaces.REBUILDS, "/api/v1/rebuilds"),
    Listing(keyspaces.REBUILDS, "/api/v1/rebuilds/([0-9a-fA-F-]{36})"),
)


@dataclass(frozen=True)
class Wanted:
    """What of a request the cache and the view need; the rest stays with the connection."""

    listing: Listing
    subject: str
    path: str
    query: str
    media: str
    headers: tuple[tuple[str, str], ...]
    credentials: users.Shown

    @property
    def fields(self) -> Query:
        return parse_qs(self.query, keep_blank_values=True)


@dataclass(frozen=True)
class Looked:
    """What a look says of it: who asks, what was asked of the cache, and the name of the body."""

    user: Any
    state: State
    name: Name


class NotKept(Exception):
    """The view answers something else than 200: it goes to who asked, and is not kept."""

    def __init__(self, response: Any) -> None:
        super().__init__(response.status_code)
        self.response = response


def wanted(listing: Listing, subject: str, request: Request) -> Wanted | None:
    """None where it is Django's to answer."""
    if request.method not in (b"GET", b"HEAD"):
        return None
    query = request.uri.partition(b"?")[2].decode("latin-1")
    given = parse_qs(query, keep_blank_values=True)
    if listing.parameters is not None and not listing.parameters.issuperset(given):
        return None
    if any("\0" in value for values in given.values() for value in values):
        # No name has it, and the database takes none.
        return None
    media = _media(request.joined("accept") or "*/*", listing.media)
    if media is None:
        return None
    found = ((name, request.getHeader(name)) for name in PASSED)
    return Wanted(
        listing,
        subject,
        request.path.decode("latin-1"),
        query,
        media,
        tuple((name, value) for name, value in found if value is not None),
        users.shown_by(request),
    )


def _media(accept: str, offered: Sequence[str]) -> str | None:
    """The first type that is offered and taken; without weights, which no client of ours sends."""
    taken = {item.partition(";")[0].strip() for item in accept.lower().split(",")}
    for media in reversed(offered):
        if media in taken:
            return media
    return offered[0] if taken & {"*/*", "application/*"} else None


def look(asked: Wanted) -> Looked:
    """In a thread. Raises Unauthorized, Forbidden, NotFound and DisallowedHost, which are Django's
    to answer."""
    user = users.viewer(*asked.credentials)
    # It refuses names that are not ours, before any of them is part of a body.
    origin = _request(asked, user).build_absolute_uri("/")
    tags = asked.listing.tags(asked.subject, asked.fields)
    found = state(asked.listing.keyspace.name, tags)
    return Looked(user, found, _name(asked, found, origin))


def _name(asked: Wanted, found: State, origin: str) -> Name:
    revision = found.incarnation
    if asked.listing.is_exact:
        revision = revisions.of_nodes(asked.listing.tags(asked.subject, asked.fields))
    variant = repr((origin, asked.path, asked.query, asked.media))
    keyspace = asked.listing.keyspace.name
    about = asked.subject or " ".join(asked.listing.tags("", asked.fields))
    subject = about if asked.listing.is_exact else variant
    return Name(keyspace, subject, variant, f"{found.generation}:{revision}")


def build(asked: Wanted, looked: Looked) -> Entry:
    """The body and what it is exact by, of one snapshot, in a thread. Raises NotKept."""
    with sql.snapshot():
        origin = _request(asked, looked.user).build_absolute_uri("/")
        now = state(asked.listing.keyspace.name) if not asked.listing.is_exact else looked.state
        name = _name(asked, now._replace(generation=looked.state.generation), origin)
        made = _viewed(asked, looked.user)
    if asked.listing.is_exact:
        tag, born = versioned.etag_of(name), 0.0
    else:
        tag, born = "W/" + etags.make("status", made.body), now.now
    headers = (*made.headers, ("ETag", tag))
    return replace(made, headers=headers, revision=name.revision, born=born)


def _viewed(asked: Wanted, user: Any) -> Entry:
    """What the view answers, with those of its headers that are the body's."""
    request = _request(asked, user)
    found = resolve(request.path_info)
    response = found.func(request, *found.args, **found.kwargs)
    if hasattr(response, "render"):
        response.render()
    if response.status_code != 200:  # noqa: PLR2004
        raise NotKept(response)
    headers = tuple((key, value) for key, value in response.items() if key.lower() not in OWN)
    if not response.streaming:
        return Entry.of(response.content, headers)
    packer = zstandard.ZstdCompressor(ZSTD_LEVEL).compressobj()
    packed, size = BytesIO(), 0
    for piece in response:
        packed.write(packer.compress(piece))
        size += len(piece)
    packed.write(packer.flush())
    return Entry(packed.getvalue(), ZSTD, size, headers)


def _request(asked: Wanted, user: Any) -> WSGIRequest:
    """As Django would have made it, with the user that is known already."""
    passed = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in asked.headers}
    request = WSGIRequest(
        {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": asked.path,
            "QUERY_STRING": asked.query,
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "80",
            "HTTP_ACCEPT": asked.media,
            "wsgi.url_scheme": "http",
            "wsgi.input": BytesIO(),
            **passed,
        }
    )
    # DRF takes the user of a session from here.
    request.user = user
    return request
