"""Entity tags and codings of answers that have a version, however a client sends its lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from twisted.web.http_headers import Headers

from api.server import versioned
from api.server.http import Request


class Sent(Request):
    """A request of which only the headers have arrived."""

    def __init__(self, **headers: Sequence[str]) -> None:
        self.requestHeaders = Headers(
            {name.replace("_", "-"): list(lines) for name, lines in headers.items()}
        )
        self.responseHeaders = Headers()
        self.status = 200
        self.sent: list[bytes] = []

    def setResponseCode(self, code: int, message: Any = None) -> None:
        self.status = code

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def finish(self) -> None:
        self.sent.append(b"")


@pytest.mark.parametrize(
    ("lines", "is_current"),
    [
        (['W/"a"'], True),
        (['"b"', 'W/"a"'], True),
        (['W/"a"', '"b"'], True),
        (['"a"'], True),
        (['"b", W/"c"'], False),
        ([], False),
    ],
)
def test_several_lines_of_entity_tags_are_one_list(lines: list[str], is_current: bool) -> None:
    request = Sent(if_none_match=lines)
    assert versioned.is_current(request, 'W/"a"', versioned.REVALIDATED) is is_current
    assert (request.status == 304) is is_current
    assert request.responseHeaders.getRawHeaders("etag") == ['W/"a"']


@pytest.mark.parametrize(
    ("lines", "coding"),
    [
        (["zstd"], "zstd"),
        (["gzip", "ZSTD;q=0.5"], "zstd"),
        (["gzip, zstd; q=0"], "gzip"),
        (["deflate", "GZIP"], "gzip"),
        (["gzip;q=0"], ""),
        (["br"], ""),
        ([], ""),
    ],
)
def test_the_best_coding_that_any_line_names_is_taken(lines: list[str], coding: str) -> None:
    assert versioned.coding_of(Sent(accept_encoding=lines)) == coding
