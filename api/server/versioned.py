"""Answers that have a version: whoever has it already gets a 304; the others get it packed as they
take it, as the body cache keeps it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from twisted.internet.interfaces import IPullProducer
from zope.interface import implementer

from api import etags
from api.cache.entry import GZIP, IDENTITY, ZSTD, Entry, Name
from api.server.http import Request
from api.server.native import respond
from api.server.operations import Parameter

# Whoever stores an answer must not show it to others.
JSON = "application/json"
VARY = "Accept-Encoding, Authorization"
# Asks each time whether it is still right.
REVALIDATED = "private, no-cache"
# Is right for ever.
IMMUTABLE = "private, max-age=31536000, immutable"

PARAMETERS = (
    Parameter("Accept-Encoding", "`zstd` or `gzip` packs the answer.", place="header"),
    Parameter("If-None-Match", "304 where this is the `ETag`.", place="header"),
)
PACKED = {"Content-Encoding": "`zstd` or `gzip`, where it is packed."}


def described(etag: str, cache_control: str) -> Mapping[str, str]:
    """The headers of such an answer, and of its 304, for OpenAPI. `etag`: what it names."""
    return {
        "ETag": f"{etag}; `If-None-Match` takes it.",
        "Vary": f"`{VARY}`",
        "Cache-Control": f"`{cache_control}`",
    }


def etag_of(name: Name) -> str:
    """Weak: each coding has other bytes."""
    return "W/" + etags.make(name.keyspace, name.subject, name.variant, name.revision)


def is_current(request: Request, etag: str, cache_control: str, vary: str = VARY) -> bool:
    """Whether the client has it, and then it is answered. Sets the headers of either answer."""
    request.setHeader("ETag", etag)
    request.setHeader("Vary", vary)
    request.setHeader("Cache-Control", cache_control)
    if not is_named(etag, request.joined("if-none-match")):
        return False
    respond(request, b"", status=304)
    return True


def is_named(etag: str, if_none_match: str | None) -> bool:
    return etag.removeprefix("W/") in (if_none_match or "")


def coding_of(request: Request) -> str:
    """How the client takes the body: the best that we have and its Accept-Encoding names."""
    return accepted(request.joined("accept-encoding") or "")


def accepted(header: str) -> str:
    """ZSTD, or else GZIP, where the header names it with a weight that is not 0."""
    named = set()
    for item in header.lower().split(","):
        coding, _, weight = item.partition(";")
        if weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}:
            named.add(coding.strip())
    return next((coding for coding in (ZSTD, GZIP) if coding in named), IDENTITY)


def send(request: Request, entry: Entry, coding: str, content_type: str = JSON) -> None:
    """A complete answer. A large body that the client takes only unpacked is unpacked while it is
    read."""
    if entry.coding in (IDENTITY, coding):
        if entry.coding:
            request.setHeader("Content-Encoding", entry.coding)
        respond(request, entry.body, content_type)
        return
    request.setHeader("Content-Type", content_type)
    request.setHeader("Content-Length", str(entry.plain))
    if request.method == b"HEAD":
        request.finish()
    else:
        request.registerProducer(_Pieces(request, entry.pieces()), False)


@implementer(IPullProducer)
class _Pieces:
    """Writes a piece whenever the one before has left."""

    def __init__(self, request: Request, pieces: Iterator[bytes]) -> None:
        self._request = request
        self._pieces = pieces

    def resumeProducing(self) -> None:
        piece = next(self._pieces, None)
        if piece is None:
            self._request.unregisterProducer()
            self._request.finish()
        else:
            self._request.write(piece)

    def stopProducing(self) -> None:
        """The client has left."""
        self._pieces = iter(())
