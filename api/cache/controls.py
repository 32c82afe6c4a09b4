"""What operators may ask of the body cache: flush it, switch it off and on, all or a part of it.

It is written in the database, and each look into the cache reads it: it holds on all servers from
the moment on that it is committed. A flush raises a generation, which all names hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import structlog

from api.cache.keyspaces import KEYSPACES
from api.cache.store import Store
from tagmill import sql
from tagmill.errors import Invalid, NotFound
from tagmill.fleet import incarnation
from tagmill.fleet.models import Partition
from tagmill.tags.models import Tag

log = structlog.get_logger("tagmill.cache")

ALL = "all"
CHANNEL = "tagmill_cache"
# The app has one file of queries, in its own folder.
QUERIES = str(Path(__file__).resolve().parent)


@dataclass(frozen=True)
class Scope:
    """A part of the cache: what is of the keyspace, and about the tag or the partition; None: of
    any."""

    keyspace: str | None = None
    tag: str | None = None
    partition: int | None = None

    @property
    def name(self) -> str:
        parts = (
            self.keyspace and f"keyspace {self.keyspace}",
            self.tag and f"tag {self.tag}",
            self.partition is not None and f"partition {self.partition}",
        )
        return ", ".join(part for part in parts if part) or ALL

    def check(self) -> None:
        """Raises Invalid, NotFound: a typing error must not look like success."""
        if self.keyspace is not None and self.keyspace not in KEYSPACES:
            known = ", ".join(KEYSPACES)
            raise Invalid(f"there is no keyspace {self.keyspace!r}: {known}", field="keyspace")
        if self.tag is not None and not Tag.objects.filter(name=self.tag).exists():
            raise NotFound(f"there is no tag {self.tag!r}")
        if self.partition is not None and not Partition.objects.filter(id=self.partition).exists():
            raise NotFound(f"there is no partition {self.partition}")


class State(NamedTuple):
    """`now`: by the database's clock."""

    incarnation: str
    now: float
    generation: int
    is_off: bool


class _Row(NamedTuple):
    incarnation: str | None
    now: float
    generation: int
    is_off: bool


def state(keyspace: str, tags: Iterable[str] = (), partition: int | None = None) -> State:
    """What was asked of the bodies of this keyspace that are about these tags, or the partition."""
    scopes = scopes_of(keyspace, tags, partition)
    (found,) = sql.bound(_Row, QUERIES, "body_cache_state", {"scopes": scopes})
    named = found.incarnation or str(incarnation.current())
    return State(named, found.now, found.generation, found.is_off)


def flush(scope: Scope) -> None:
    """Nobody finds what is kept by now. Raises Invalid, NotFound."""
    scope.check()
    sql.run(QUERIES, "body_cache_flush", {"scope": scope.name})
    _announce(scope)
    log.info("bodies flushed", action="flush", scope=scope.name)


def switch(scope: Scope, *, is_off: bool) -> None:
    """Keep nothing of it, or keep it again; all of it that was switched off, where the scope is
    everything. Raises Invalid, NotFound."""
    scope.check()
    if scope == Scope() and not is_off:
        sql.run(QUERIES, "body_cache_switch_all_on", {})
    else:
        sql.run(QUERIES, "body_cache_switch", {"scope": scope.name, "is_off": is_off})
    if is_off:
        _announce(scope)
    log.info("bodies switched", action="switch", scope=scope.name, is_off=is_off)


def scopes_of(keyspace: str, tags: Iterable[str] = (), partition: int | None = None) -> list[str]:
    """The scopes that these bodies are of, by their names in the database."""
    return [scope.name for scope in _scopes(keyspace, tags, partition)]


def _scopes(keyspace: str, tags: Iterable[str], partition: int | None) -> Iterator[Scope]:
    yield Scope()
    yield Scope(keyspace)
    for tag in tags:
        yield Scope(tag=tag)
        yield Scope(keyspace, tag)
    if partition is not None:
        yield Scope(partition=partition)
        yield Scope(keyspace, partition=partition)


def _announce(scope: Scope) -> None:
    """Processes give the memory back: nobody asks for these bodies again."""
    subject = scope.tag if scope.partition is None else str(scope.partition)
    payload = json.dumps({"keyspace": scope.keyspace, "subject": subject})
    sql.run(QUERIES, "body_cache_announce", {"channel": CHANNEL, "payload": payload})


def heard(payload: str, store: Store) -> None:
    """What another process announced. It is about memory alone: names hold the generation."""
    scope = json.loads(payload)
    store.drop(scope["keyspace"], scope["subject"])
