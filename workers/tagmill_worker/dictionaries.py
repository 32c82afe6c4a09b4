"""What documents of packed pages are unpacked with: pages name dictionaries, fetched once each."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import zstandard

from tagmill_wire import frames
from tagmill_wire.messages import WireError
from tagmill_worker import pages
from tagmill_worker.errors import ProtocolError

# Some 50 kB each: one for each probe of a few clusters, and its successor.
MAX_KEPT = 32

# Takes a partition and an id; gives the body, and whether that is zstd.
Fetch = Callable[[int, int], Coroutine[Any, Any, tuple[bytes, bool]]]


class Dictionaries:
    """The last few, packed by zstd, by id. `fetch` may raise ServerError."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._kept: dict[int, bytes] = {}

    async def named_in(self, header: str | None, partition: int) -> list[bytes]:
        """The ones that a page of the partition names. Raises ServerError: NotFound where one has
        gone."""
        try:
            ids = frames.named(header)
        except WireError as error:
            raise ProtocolError(f"not a page: {error}") from None
        found = []
        for key in ids:
            data = self._kept.pop(key, None) or await self._fetched(partition, key)
            # The one that was named last is the last to go.
            self._kept[key] = data
            while len(self._kept) > MAX_KEPT:
                del self._kept[next(iter(self._kept))]
            found.append(data)
        return found

    async def _fetched(self, partition: int, key: int) -> bytes:
        body, is_zstd = await self._fetch(partition, key)
        plain = pages.unpack(body, frames.MAX_DICTIONARY_BYTES) if is_zstd else body
        if frames.identity(plain) != key:
            raise ProtocolError(f"not the dictionary {key}")
        return body if is_zstd else zstandard.compress(body, pages.ZSTD_LEVEL)
