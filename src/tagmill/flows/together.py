"""Changes of nodes that arrive together share a transaction, whichever threads they arrive in.

A thread that finds nobody at work stores its own at once; what arrives meanwhile waits, and one of
the waiting threads then stores all of it. So many clients wait for one commit, and not each for
those of all before it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

from django.db import connection

from tagmill.errors import AlreadyExists, DatabaseBusy, NotFound
from tagmill.fleet.documents import Upload, Verdict
from tagmill.flows import ingest
from tagmill.flows.ingest import Deletion

Item = TypeVar("Item")

# What goes together is one transaction: its locks last well under a second.
MAX_ITEMS = 64
MAX_BYTES = 4 * 1024 * 1024
# Where a thread has been at work for so long (it waits for a lock, for a slow disk), others go on.
PATIENCE_SECONDS = 0.05
MAX_PAUSES = 16
# Above what the database allows statements and locks by default.
MAX_SECONDS = 120.0


class Wanted(NamedTuple, Generic[Item]):
    """One request: `items` go together in any case. `size`: the bytes that they hold."""

    items: Sequence[Item]
    size: int = 0


@dataclass(eq=False)
class _Call(Generic[Item]):
    wanted: Wanted[Item]
    is_begun: bool = False
    results: Sequence[Verdict | Exception] | None = None


class Together(Generic[Item]):
    """`work` has for each item, in their order, its verdict or the error that it raises; where
    `work` itself raises, every item does. For any thread."""

    def __init__(
        self,
        work: Callable[[Sequence[Item]], Sequence[Verdict | Exception]],
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._work = work
        self._patience = patience
        self._changed = threading.Condition()
        self._waiting: list[_Call[Item]] = []
        self._running = 0
        self._last_began = 0.0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def call(self, wanted: Wanted[Item]) -> Sequence[Verdict | Exception]:
        """For each item its verdict, or what it raises. Raises DatabaseBusy."""
        if connection.in_atomic_block:
            # Others would see it, or wait for it, before this transaction ends.
            return self._work(wanted.items)
        mine = _Call(wanted)
        ends = time.monotonic() + MAX_SECONDS
        with self._changed:
            self._waiting.append(mine)
        while group := self._group(mine, ends):
            self._run(group)
        assert mine.results is not None  # noqa: S101 - `_group` says so
        return mine.results

    def _group(self, mine: _Call[Item], ends: float) -> list[_Call[Item]]:
        """What is to be stored by this thread now; nothing where its own is."""
        with self._changed:
            while mine.results is None:
                now = time.monotonic()
                if now >= ends:
                    if not mine.is_begun:
                        self._waiting.remove(mine)
                    raise DatabaseBusy("the requests before this one took too long: try again")
                left = self._last_began + self._pause() - now if self._running else 0.0
                if not mine.is_begun and left <= 0:
                    self._running += 1
                    self._last_began = now
                    return self._next()
                self._changed.wait(ends - now if mine.is_begun else left)
        return []

    def _pause(self) -> float:
        """Longer with each thread that is at work: what they wait for may be one lock, and whoever
        comes later is better off in a larger group than behind them."""
        return self._patience * min(1 << (self._running - 1), MAX_PAUSES)

    def _next(self) -> list[_Call[Item]]:
        group: list[_Call[Item]] = []
        count = size = 0
        for call in self._waiting:
            count += len(call.wanted.items)
            size += call.wanted.size
            if group and (count > MAX_ITEMS or size > MAX_BYTES):
                break
            group.append(call)
            call.is_begun = True
        del self._waiting[: len(group)]
        return group

    def _run(self, group: Sequence[_Call[Item]]) -> None:
        items = [item for call in group for item in call.wanted.items]
        results: Sequence[Verdict | Exception] = []
        try:
            results = self._work(items)
        except Exception as error:
            results = [error] * len(items)
        finally:
            left = iter(results)
            with self._changed:
                self._running -= 1
                for call in group:
                    call.results = [
                        next(left, DatabaseBusy("it was not stored: try again"))
                        for _ in call.wanted.items
                    ]
                self._changed.notify_all()


_stored: Together[Upload] = Together(ingest.store_requests)
_deleted: Together[Deletion] = Together(ingest.delete_requests)


def store_all(uploads: Sequence[Upload]) -> Sequence[Verdict | Exception]:
    """As `ingest.store_requests`."""
    return _stored.call(Wanted(uploads, sum(map(_size, uploads)))) if uploads else []


def store(upload: Upload, create: bool | None = None) -> Verdict:
    """As `ingest.store`. Raises what the upload is refused for."""
    wanted = _expecting(upload, create)
    return _only(_stored.call(Wanted([wanted], _size(wanted))))


def delete(system_id: str, expects: Callable[[Any], None] | None = None) -> bool:
    """As `ingest.delete`."""
    verdict = _only(_deleted.call(Wanted([Deletion(system_id, expects)])))
    return bool(verdict.settled)


def _only(found: Sequence[Verdict | Exception]) -> Verdict:
    (verdict,) = found
    if isinstance(verdict, Exception):
        raise verdict
    if verdict.error is not None:
        raise verdict.error
    return verdict


def _size(upload: Upload) -> int:
    return sum(len(xml) for xml in upload.probes.values() if xml is not None)


def _expecting(upload: Upload, create: bool | None) -> Upload:
    """The upload with `create` as of `ingest.store`, which is for all that goes together."""
    if create is None:
        return upload

    def expects(node: object | None) -> None:
        if create and node is not None:
            raise AlreadyExists(f"there is a node {upload.system_id!r} already", field="system_id")
        if not create and node is None:
            raise NotFound(f"there is no node {upload.system_id!r}")
        if upload.expects is not None:
            upload.expects(node)

    return replace(upload, expects=expects)
