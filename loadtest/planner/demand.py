"""What is asked of a plan: how many nodes and tags, how large the documents, which definitions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from loadtest.rig.definitions import searches

# A fleet of the generator's `varied` profile, whose documents are as large and as hard to compress
# as those of real machines.
DOCUMENT_BYTES = 56_100.0
VARIETY = 0.0356


@dataclass(frozen=True)
class Demand:
    """`target` in seconds. `is_cold`: the workers hold nothing of the fleet yet.

    `document_bytes`: of a node, over all its documents, in the mean. `variety`: the share of these
    bytes that is left when many nodes are compressed together, so what is a node's own.
    `searching`: the share of the definitions that are answered by a search of each document (that
    count, add up, compare with `position()`), not by looking up which documents have something;
    None: as many as there are among so many definitions of the benches.
    """

    nodes: int
    tags: int
    target: float
    is_cold: bool = False
    document_bytes: float = DOCUMENT_BYTES
    variety: float = VARIETY
    searching: float | None = None

    @property
    def searches(self) -> float:
        """How many tags search."""
        return searches(self.tags) if self.searching is None else self.tags * self.searching

    def but(self, *, is_cold: bool) -> Demand:
        return replace(self, is_cold=is_cold)

    def scaled(self, nodes: int, tags: int) -> Demand:
        """The same fleet's documents and kinds of definitions, in other numbers."""
        share = self.searches / self.tags
        return replace(self, nodes=nodes, tags=tags, searching=share)
