"""What is asked of a plan: how many nodes and tags, how large the documents, which definitions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from loadtest.rig.definitions import searches

# A fleet of the generator's `varied` profile, whose documents are as large and as hard to compress
# as those of real machines.
DOCUMENT_BYTES = 56_100.0
VARIETY = 0.0356

# Where partitions are: in the workers' memory; in files on their disks, as after a restart; in the
# store of shared images, for new workers; in the database, as documents.
State = Literal["hot", "warm", "shared", "cold"]
STATES: tuple[State, ...] = ("hot", "warm", "shared", "cold")
HELD = ("hot", "warm")


@dataclass(frozen=True)
class Demand:
    """`target` in seconds. `state`: where the workers have the fleet from.

    `document_bytes`: of a node, over all its documents, in the mean. `variety`: the share of these
    bytes that is left when many nodes are compressed together, so what is a node's own.
    `searching`: the share of the definitions that are answered by a search of each document (that
    count, add up, compare with `position()`), not by looking up which documents have something;
    None: as many as there are among so many definitions of the benches.
    """

    nodes: int
    tags: int
    target: float
    state: State = "hot"
    document_bytes: float = DOCUMENT_BYTES
    variety: float = VARIETY
    searching: float | None = None

    @property
    def searches(self) -> float:
        """How many tags search."""
        return searches(self.tags) if self.searching is None else self.tags * self.searching

    @property
    def is_held(self) -> bool:
        """Whether the workers say that they hold what they are asked about."""
        return self.state in HELD

    def but(self, *, state: State) -> Demand:
        return replace(self, state=state)

    def scaled(self, nodes: int, tags: int) -> Demand:
        """The same fleet's documents and kinds of definitions, in other numbers."""
        share = self.searches / self.tags
        return replace(self, nodes=nodes, tags=tags, searching=share)
