"""The evaluator protocol.

An evaluator compiles expressions and makes images; an image takes the documents of some slots and
answers any number of compiled expressions over them in one pass. All of it runs in the child
process (`child`), so that neither a crash nor an endless evaluation can hurt the worker.
`tests/workers/test_evaluators.py` runs over every implementation in `EVALUATORS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version as distribution_version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tagmill_expressions.vocabulary import Vocabulary

# What `Note` says instead of an expression's id.
IDLE = -1
PARSING = -2
EVALUATING = -3
SHADOWING = -4
# At none of these is one expression to blame; asked singly, and without a shadow, one may show.
BLAMELESS = frozenset({EVALUATING, SHADOWING})
# Nor at these, which are about a document or a page.
READING = frozenset({IDLE, PARSING})
# The slot, where all of a page is meant.
PAGE = -1
# What a server allows unless it is told otherwise.
EVALUATION_SECONDS = 5.0


class Note(Protocol):
    """Says what runs from now on, so that the parent knows whom to blame for a kill.

    `expression` is an id, PARSING (a document), EVALUATING (many expressions at once), SHADOWING
    (the reference, too, where another has answered) or IDLE. `slot` is PAGE for many documents at
    once. Costs well below a microsecond.
    """

    def __call__(self, expression: int, slot: int) -> None: ...


@dataclass(slots=True)
class Answers:
    """`members`: the slots that match, by expression id; a bitmap as a Python int.

    `failures`: the reason, by the id of an expression that has no answer. `unreadable`: slots whose
    document the parser refuses, for its reason; they match nothing. `shadowed`: documents that
    the reference was asked about too, and `disagreements` the (expression, slot) on which it
    differs. `vocabulary`: of the documents to learn from, as far as they can be parsed; None where
    there was none.
    """

    members: dict[int, int] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    unreadable: dict[int, str] = field(default_factory=dict)
    documents: int = 0
    shadowed: int = 0
    disagreements: list[tuple[int, int]] = field(default_factory=list)
    vocabulary: Vocabulary | None = None


class Image(Protocol):
    """The documents of slots. A slot without probes ({} or None) matches nothing, also `true()`."""

    @property
    def nbytes(self) -> int:
        """What it takes in memory."""
        ...

    def put(self, slot: int, probes: Mapping[str, str]) -> None: ...

    def remove(self, slot: int) -> None: ...

    def evaluate(
        self,
        expressions: Sequence[tuple[int, Any]],
        slots: int | None,
        note: Note,
        learn: int = 0,
        singly: bool = False,
        *,
        seconds: float = EVALUATION_SECONDS,
    ) -> Answers:
        """One pass for all (id, compiled); over all slots, or those of the bitmap `slots`. The
        bitmap `learn`, of none but these, says whose vocabulary is wanted, too. `singly`: one
        expression after the other, each noted, though that takes longer; nothing is shadowed.
        `seconds` is what one expression may take: an evaluator that counts its steps stops at some
        part of it by itself, the others are stopped from outside."""
        ...


class Evaluator(Protocol):
    """`name` is what the worker registers with. `keeps_images`: whether an image is worth keeping
    for the next pass, since it answers faster than its documents can be parsed again."""

    name: str
    keeps_images: bool

    def compile(self, text: str, namespaces: Mapping[str, str]) -> Any:
        """Raises tagmill_expressions.errors.ExpressionError."""
        ...

    def image(self, source: Source, shadow: float = 0.0) -> Image:
        """A new image without documents. `source` gives them again, for whatever an image does not
        keep; `shadow` is the share of documents to ask the reference about, too."""
        ...


class Kept(Image, Protocol):
    """An image that can be saved."""

    def save(self, path: Path) -> dict[str, str]:
        """Writes the file as a whole or not at all; answers what `Keeper.open` needs besides.
        Raises ImageRefused."""
        ...


class Keeper(Evaluator, Protocol):
    """An evaluator that `keeps_images`. `version`: another may make another image of a page."""

    version: str

    def open(self, path: Path, more: Mapping[str, str], source: Source, shadow: float) -> Image:
        """What `Kept.save` wrote, and answered. Raises ImageRefused for another file."""
        ...


Source = Callable[[], Iterable[tuple[int, Mapping[str, str] | None]]]

# Modules that have an `EVALUATOR`. Imported in the child alone: the parent holds no libxml2.
EVALUATORS = {
    "kernel": "tagmill_worker.evaluators.kernel_evaluator",
    "lxml": "tagmill_worker.evaluators.lxml_evaluator",
}
# The names of evaluators that keep images, for whoever does not import them.
KEEPERS = frozenset({"kernel"})
AUTO = "auto"
KERNEL_MODULE = "tagmill_kernel"


def load(name: str) -> Evaluator:
    """Raises KeyError for an unknown name."""
    evaluator: Evaluator = import_module(EVALUATORS[name]).EVALUATOR
    return evaluator


def has_kernel() -> bool:
    """Whether the kernel is installed. It is not imported."""
    return find_spec(KERNEL_MODULE) is not None


def version(name: str) -> str:
    """The version of an evaluator that keeps images, which is not imported."""
    return distribution_version("tagmill-kernel") if name == "kernel" else ""


def resolve(name: str) -> str:
    """`auto` is the kernel where it is installed, and lxml elsewhere."""
    if name != AUTO:
        return name
    return "kernel" if has_kernel() else "lxml"
