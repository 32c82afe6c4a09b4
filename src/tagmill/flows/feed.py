"""What has changed since a cursor: memberships, tags, nodes and rebuilds, complete and in an order
in which everything comes after what it follows from.

A cursor names a snapshot of PostgreSQL's: which transactions had ended. What the next one sees and
that one did not is the next stretch; a stretch is read in pages, first the trail (memberships and
tags, each change), then nodes and rebuilds (as they are by then). Nothing that commits late is
missed, as it would be by a time or a number. Nodes and rebuilds may come twice, with the same rev
or state.
"""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import orjson

from tagmill import sql
from tagmill.config import load
from tagmill.errors import CursorGone, Invalid
from tagmill.fleet import incarnation
from tagmill.tags import changes
from tagmill_wire import bitmap

# All that there is: no transaction had ended.
NOTHING = "1:1:"
# Nodes that the changes of one page name, unless its first alone names more.
MAX_NAMED = 20_000
TRAIL, NODES, REBUILDS = range(3)
DAY = 86_400
SNAPSHOT = re.compile(r"[1-9]\d{0,17}:[1-9]\d{0,17}:(\d{1,18}(,\d{1,18})*)?")


@dataclass(frozen=True)
class Cursor:
    """`since` and `until`: the stretch, `until` empty before it has begun. `phase` and `key`: how
    far it is read."""

    incarnation: str
    at: float
    since: str
    until: str = ""
    phase: int = TRAIL
    key: tuple[int, ...] = (0,)

    def encode(self) -> str:
        parts = [self.incarnation, int(self.at), self.since, self.until, self.phase, [*self.key]]
        return base64.urlsafe_b64encode(orjson.dumps(parts)).decode().rstrip("=")


class Change(NamedTuple):
    """`phase` and `key`: its place in its stretch."""

    kind: str
    body: dict[str, Any]
    phase: int
    key: tuple[int, ...]


@dataclass(frozen=True)
class Page:
    """`cursor`: where to go on; `more`: whether the next is there already. `stretch`: a cursor of
    the stretch that the changes are of."""

    changes: list[Change]
    cursor: Cursor
    more: bool
    stretch: Cursor

    def after(self, change: Change) -> Cursor:
        """Where to go on after one of its changes."""
        return replace(self.stretch, phase=change.phase, key=change.key)


class _Part(NamedTuple):
    """What one phase has for a page. `key`: where it ends, if it is not all that there is."""

    changes: list[Change]
    key: tuple[int, ...] | None


class _Now(NamedTuple):
    incarnation: Any
    snapshot: str
    at: float


class _Trail(NamedTuple):
    seq: int
    at: Any
    actor: str
    action: str | None
    name: str | None
    changes: Any
    tags: list[str] | None
    partition: int
    added: bytes
    removed: bytes


class _Node(NamedTuple):
    partition: int
    slot: int
    system_id: str
    hostname: str
    node_kind: str
    cluster: str
    rev: int
    updated_at: Any
    deleted: bool


class _Rebuild(NamedTuple):
    id: int
    uuid: Any
    state: str
    reason: str
    requested_by: str | None
    requested_at: Any
    finished_at: Any
    tag_count: int


def decode(text: str) -> Cursor:
    """`""` is now, `0` the beginning of what is kept. Raises Invalid, CursorGone."""
    now = _now()
    if not text:
        return Cursor(str(now.incarnation), now.at, now.snapshot)
    if text == "0":
        return Cursor(str(now.incarnation), now.at, NOTHING)
    found = _decoded(text)
    if found.incarnation != str(now.incarnation):
        raise CursorGone("the database was restored or failed over: read the lists anew, and begin")
    if found.at < time.time() - load().change_days * DAY:
        raise CursorGone("the cursor is older than what is kept: read the lists anew, and begin")
    return found


def read(cursor: Cursor, most: int) -> Page:
    """Up to `most` changes after the cursor."""
    if not cursor.until:
        now = _now()
        cursor = replace(cursor, until=now.snapshot, at=now.at)
    stretch, readers = cursor, (_trail, _nodes, _rebuilds)
    found: list[Change] = []
    while cursor.phase <= REBUILDS:
        part = readers[cursor.phase](cursor, most - len(found))
        found += part.changes
        if part.key is not None:
            return Page(found, replace(cursor, key=part.key), True, stretch)
        key = (0, -1) if cursor.phase == TRAIL else (0,)
        cursor = replace(cursor, phase=cursor.phase + 1, key=key)
        if len(found) >= most and cursor.phase <= REBUILDS:
            return Page(found, cursor, True, stretch)
    return Page(found, Cursor(cursor.incarnation, cursor.at, cursor.until), False, stretch)


def _trail(cursor: Cursor, most: int) -> _Part:
    values = {"since": cursor.since, "until": cursor.until, "after": cursor.key[0], "most": most}
    rows = sql.named(_Trail, __file__, "feed_trail", values)
    shown = _nameable(rows)
    is_whole = len(rows) < most and shown == len(rows)
    members = [row for row in rows[:shown] if row.action is None and row.tags]
    names = iter(
        changes.named(
            [(row.partition, bits) for row in members for bits in (row.added, row.removed)]
        )
    )
    clusters = changes.clusters_of({row.partition for row in members})
    found = []
    for row in rows[:shown]:
        if row.action is not None:
            found.append(Change("tag", _tag(row), TRAIL, (row.seq,)))
        elif row.tags:
            body = {
                "at": row.at,
                "actor": row.actor,
                "tags": row.tags,
                "cluster": clusters.get(row.partition),
                "added": next(names),
                "removed": next(names),
            }
            found.append(Change("membership", body, TRAIL, (row.seq,)))
    return _Part(found, None if is_whole else (rows[shown - 1].seq,))


def _nameable(rows: Sequence[_Trail]) -> int:
    """How many of the first rows name no more nodes than a page may, or the first alone."""
    named = 0
    for number, row in enumerate(rows):
        if row.action is None:
            named += bitmap.from_bytes(row.added).bit_count()
            named += bitmap.from_bytes(row.removed).bit_count()
        if named > MAX_NAMED and number:
            return number
    return len(rows)


def _tag(row: _Trail) -> dict[str, Any]:
    """`reset`: its nodes are others at once, and are to be read again."""
    return {
        "at": row.at,
        "actor": row.actor,
        "tag": row.name,
        "action": row.action,
        "changes": row.changes,
        "reset": row.action == "published",
    }


def _nodes(cursor: Cursor, most: int) -> _Part:
    partition, slot = cursor.key
    values = {"since": cursor.since, "partition": partition, "slot": slot, "most": most}
    rows = sql.named(_Node, __file__, "feed_nodes", values)
    shown = _Node._fields[2:]
    found = [Change("node", dict(zip(shown, row[2:], strict=True)), NODES, row[:2]) for row in rows]
    return _Part(found, found[-1].key if len(rows) == most else None)


def _rebuilds(cursor: Cursor, most: int) -> _Part:
    values = {"since": cursor.since, "after": cursor.key[0], "most": most}
    rows = sql.named(_Rebuild, __file__, "feed_rebuilds", values)
    shown = _Rebuild._fields[1:]
    found = [
        Change("rebuild", dict(zip(shown, row[1:], strict=True)), REBUILDS, row[:1]) for row in rows
    ]
    return _Part(found, found[-1].key if len(rows) == most else None)


def _now() -> _Now:
    (found,) = sql.named(_Now, __file__, "feed_now", {})
    return found if found.incarnation else found._replace(incarnation=incarnation.current())


def _decoded(text: str) -> Cursor:
    """Raises Invalid."""
    try:
        parts = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        uuid, at, since, until, phase, key = parts
        found = Cursor(uuid, float(at), since, until, phase, tuple(key))
    except (binascii.Error, ValueError, TypeError):
        found = None
    if found is None or not _is_ours(found):
        raise Invalid("since must be a cursor of an earlier answer", field="since")
    return found


def _is_ours(found: Cursor) -> bool:
    """A snapshot that PostgreSQL would not read must not get there."""
    texts = (found.since, found.until or NOTHING)
    widths = {TRAIL: 1, NODES: 2, REBUILDS: 1}
    return (
        isinstance(found.incarnation, str)
        and all(isinstance(text, str) and _is_snapshot(text) for text in texts)
        and widths.get(found.phase) == len(found.key)
        and all(type(part) is int and -1 <= part < 1 << 62 for part in found.key)
    )


def _is_snapshot(text: str) -> bool:
    """xmin:xmax:xip, where xip ascends between both."""
    if not SNAPSHOT.fullmatch(text):
        return False
    lowest, highest, running = text.split(":")
    between = [int(number) for number in running.split(",") if number]
    ascending = [int(lowest), *between, int(highest)]
    return len({*between}) == len(between) and ascending == sorted(ascending)
