"""What the child is asked: pages, each in the pass of a leased partition, and their answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from twisted.internet.defer import Deferred

from tagmill_wire.messages import Definition
from tagmill_worker.pages import Page


@dataclass(eq=False, slots=True)
class Pass:
    """The expressions of one partition by id, and what came of them so far.

    Written by EvaluatorProcess and its watchdog. `failures`: reasons by id. `seen`: the slots
    answered, as a bitmap, and `unreadable` those of them that the parser refused; a slot is
    evaluated on the first page that names it. `singly`: one of the expressions is to be found out.
    `deaths`: how often the child ended at an expression (slot 0), a document, or a page (by its
    number).
    """

    expressions: dict[int, Definition]
    failures: dict[int, str] = field(default_factory=dict)
    seen: int = 0
    unreadable: int = 0
    singly: bool = False
    is_warming: bool = False
    """Pages are read without any expression, so that their images are there later."""
    spent: dict[int, float] = field(default_factory=dict)
    deaths: Counter[tuple[int, int]] = field(default_factory=Counter)

    def definitions(self) -> list[tuple[int, str, dict[str, str]]]:
        """What the child is sent: the expressions that have not failed."""
        return [
            (key, item.text, item.namespaces)
            for key, item in self.expressions.items()
            if key not in self.failures
        ]


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """`slots` are those evaluated on this page; `members`, by id, those of them that match;
    `vocabulary` what was learnt from them, packed as `Child.page` does."""

    slots: int = 0
    members: dict[int, int] = field(default_factory=dict)
    documents: int = 0
    seconds: float = 0.0
    vocabulary: bytes = b""


@dataclass(eq=False, slots=True)
class Task:
    """One page to be evaluated, and who waits for its answer."""

    number: int
    pass_: Pass
    page: Page
    run: Sequence[int]
    learn: int | None
    done: Deferred[PageAnswer]
    packed: bytes = b""
    """The page's image, of another worker's making."""
    is_cancelled: bool = False

    def left(self) -> list[int]:
        return [key for key in self.run if key not in self.pass_.failures]
