"""Partition images in columns and XPath 1.0 plans over them."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import final

__version__: str
MAX_DEPTH: int
"""Elements nested deeper than this are refused, as libxml2 refuses them without `huge_tree`."""

class KernelError(Exception): ...

class ImageError(KernelError):
    """A file is damaged, foreign or of another schema, or a partition is full."""

class DocumentRefused(KernelError):
    """A probe is not well-formed or declares a DTD. `args`: message, probe, line, column (from 1)."""

class KernelRefused(KernelError):
    """An expression is wrong, or left to lxml. `args`: reason, column (in characters, from 1)."""

class BudgetExceeded(KernelError):
    """An evaluation ran past its steps."""

@final
class Expression:
    """A compiled expression: what ``boolean(text)`` means on a document.

    The context node is the document's root element, as for lxml's `etree.XPath`. A prefix that
    `namespaces` lacks stands for the URI of the same text; `lshw:` stands for no namespace.
    Raises `KernelRefused` for what does not compile.
    """

    def __new__(cls, text: str, namespaces: Mapping[str, str] | None = None) -> Expression: ...
    @property
    def text(self) -> str: ...
    @property
    def explain(self) -> str:
        """Which parts are answered by columns, and which by the interpreter."""

@final
class PartitionImage:
    """The documents of one partition by slot. Safe to share among threads."""

    def __new__(cls) -> PartitionImage: ...
    def put(self, slot: int, probes: dict[str, bytes | str]) -> None:
        """Composes the probes into the slot's document.

        `lshw` gives the root; the others, in the order of the dict, become its last children, their
        elements moved to the namespace that bears the probe's name. Bytes are UTF-8 unless they
        declare ISO-8859-1, US-ASCII or UTF-16. On an error the slot keeps what it had. Raises
        `DocumentRefused`, and `ImageError` when the partition is full.
        """

    def remove(self, slot: int) -> bool:
        """Empties a slot; False when it was empty."""

    def slots(self) -> list[int]:
        """The occupied slots, ascending."""

    @property
    def nbytes(self) -> int:
        """Bytes in memory, indexes included."""

    def __len__(self) -> int: ...
    def save(self, path: str | PathLike[str]) -> None:
        """Writes the image, completely or not at all. Raises `ImageError`."""

    @staticmethod
    def open(path: str | PathLike[str]) -> PartitionImage:
        """Reads a saved image. Raises `ImageError` for a damaged or foreign file."""

    def evaluate(
        self,
        expressions: Sequence[Expression],
        slots: bytes | None = None,
        budget_steps: int = ...,
    ) -> list[bytes | BudgetExceeded]:
        """One bitmap per expression: bit ``n % 8``, least significant first, of byte ``n // 8``.

        Evaluates the occupied slots, or those of them in the bitmap `slots`. Bitmaps are as long as
        the highest slot ever used needs. `budget_steps` bounds each expression over all its
        documents, at about a step for a node visited; one that runs past it yields the error
        instead, and the others proceed. The GIL is released.
        """

    def vocabulary(self, max_length: int, slots: bytes | None = None) -> tuple[int, list[_Place]]:
        """What the documents of the occupied slots, or of those in the bitmap, contain.

        The number of documents, and for each place (an element's expanded name, and whether one of
        the same name is around it): name, nested, documents that have it, documents that have it
        for a root, the indexes of the places of its child elements, its attributes' values by
        expanded name, its texts where it has no children, and whether any has. Values are those of
        at most `max_length` characters with the number of documents that have each, then whether
        any is longer, is a number to XPath, is none. The GIL is released.
        """

_Values = tuple[list[tuple[str, int]], bool, bool, bool]
_Place = tuple[str, bool, int, int, list[int], list[tuple[str, _Values]], _Values, bool]

def check_document(document: bytes | str) -> None:
    """Raises `DocumentRefused` unless the document is well-formed."""

def are_plain(documents: Sequence[str], depth: int) -> list[bool]:
    """For each document whether lxml surely accepts it with no deeper nesting of elements.

    Documents have no XML declaration. False is no refusal: what has namespaces, prefixes, a DOCTYPE
    or long names is left to lxml, too. The GIL is released where there is much to read.
    """
