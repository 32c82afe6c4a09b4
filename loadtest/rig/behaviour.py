"""What simulated workers do, what they count, and the verdicts that they make up."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Protocol

from loadtest.rig.connection import Connection


@dataclass(frozen=True)
class Behaviour:
    """What the workers do. Shares are probabilities of one lease, from `seed` alone."""

    host: str
    port: int
    token: str
    seed: int
    evaluation: float  # seconds from the last page to the completion
    fetch: float  # share of leases that fetch the whole partition, as a worker that holds nothing
    fail: float  # share of leases whose worker vanishes with them
    late: float  # share of results sent after their lease was given back
    duplicate: float  # share of results sent twice
    batch_nodes: int = 1024
    batch_bytes: int = 4 << 20
    process: int = 0


@dataclass
class Report:
    """Milliseconds of each call, and counts. `parked` polls were answered without work."""

    lease_ms: list[float] = field(default_factory=list)
    batch_ms: list[float] = field(default_factory=list)
    complete_ms: list[float] = field(default_factory=list)
    applied: int = 0
    late: int = 0
    duplicates: int = 0
    vanished: int = 0
    parked: int = 0
    heartbeats: int = 0
    round_trips: int = 0
    received_bytes: int = 0
    errors: dict[str, int] = field(default_factory=dict)


class Fleet(Protocol):
    """What the workers of one process share."""

    report: Report
    is_draining: bool

    async def connect(self) -> Connection: ...
    def look(self) -> None: ...
    def count_error(self, kind: str) -> None: ...


def holds(seed: int, expression: int, partition: int, slot: int, rev: int) -> bool:
    """A verdict that anybody can find again: of an eighth of the nodes, and another one when the
    node's rev is another."""
    return zlib.crc32(f"{seed}/{expression}/{partition}/{slot}/{rev}".encode()) & 7 == 0
