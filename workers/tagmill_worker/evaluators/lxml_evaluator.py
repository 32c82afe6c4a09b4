"""The reference: libxml2, by lxml. Each document is parsed once and asked every expression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lxml import etree

from tagmill_expressions import documents, evaluation
from tagmill_expressions.errors import ExpressionError
from tagmill_expressions.evaluation import Compiled
from tagmill_expressions.vocabulary import Vocabulary
from tagmill_worker.evaluators.base import EVALUATION_SECONDS, IDLE, PARSING, Answers, Note, Source

NO_MEMORY = etree.ErrorTypes.ERR_NO_MEMORY


class LxmlImage:
    """Holds the documents' text; trees live no longer than their slot's turn: they would take ten
    times the bytes of the XML."""

    nbytes = 0

    def __init__(self) -> None:
        self._probes: dict[int, Mapping[str, str]] = {}

    def put(self, slot: int, probes: Mapping[str, str]) -> None:
        self._probes[slot] = probes

    def remove(self, slot: int) -> None:
        self._probes.pop(slot, None)

    def evaluate(
        self,
        expressions: Sequence[tuple[int, Compiled]],
        slots: int | None,
        note: Note,
        learn: int = 0,
        singly: bool = False,
        *,
        seconds: float = EVALUATION_SECONDS,
    ) -> Answers:
        # Always singly; the time is kept from outside.
        vocabulary = Vocabulary() if learn else None
        answers = Answers(members={key: 0 for key, _ in expressions}, vocabulary=vocabulary)
        running = list(expressions)
        for slot, probes in self._probes.items():
            if not probes or (slots is not None and not slots >> slot & 1):
                continue
            note(PARSING, slot)
            try:
                tree = documents.compose(probes)
            except (ExpressionError, etree.LxmlError, ValueError) as error:
                if is_shortage(error):
                    raise MemoryError from None
                answers.unreadable[slot] = str(error)
                continue
            answers.documents += 1
            bit = 1 << slot
            if vocabulary is not None and learn & bit:
                vocabulary.add(tree)
            for key, compiled in running:
                note(key, slot)
                try:
                    if compiled.matches(tree):
                        answers.members[key] |= bit
                except ExpressionError as error:
                    answers.failures[key] = str(error)
                    # A new list: the loop goes on over the old one.
                    running = [item for item in running if item[0] != key]
        note(IDLE, 0)
        for key in answers.failures:
            del answers.members[key]
        return answers


def is_shortage(error: Exception) -> bool:
    """Whether libxml2 had too little memory, which says nothing about the document."""
    return isinstance(error, etree.XMLSyntaxError) and getattr(error, "code", None) == NO_MEMORY


class LxmlEvaluator:
    name = "lxml"
    keeps_images = False

    def compile(self, text: str, namespaces: Mapping[str, str]) -> Compiled:
        return evaluation.compile(text, namespaces)

    def image(self, source: Source, shadow: float = 0.0) -> LxmlImage:
        """There is nothing to ask the reference: this is it."""
        return LxmlImage()


EVALUATOR = LxmlEvaluator()
