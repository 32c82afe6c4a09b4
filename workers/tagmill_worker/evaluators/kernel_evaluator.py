"""The kernel: documents as columns, parsed once and answered in well below a microsecond each.

What the kernel refuses goes to lxml: an expression that it does not compile, and a document that it
does not read. Both get the page's documents again from `source`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import tagmill_kernel

from tagmill_expressions import evaluation
from tagmill_expressions.documents import composition
from tagmill_expressions.evaluation import Compiled
from tagmill_expressions.vocabulary import MAX_LENGTH, Vocabulary
from tagmill_worker.errors import ImageRefused
from tagmill_worker.evaluators import kernel_vocabulary
from tagmill_worker.evaluators.base import (
    EVALUATING,
    EVALUATION_SECONDS,
    IDLE,
    PAGE,
    SHADOWING,
    Answers,
    Note,
    Source,
)
from tagmill_worker.evaluators.lxml_evaluator import LxmlImage

# A step is a node looked at, and takes some 20 ns. A fifth of the seconds that an expression may
# take, so that, as a rule, the budget ends it, alone, and not the watchdog with the child.
STEPS_PER_SECOND = 10_000_000
# Ordinary expressions take some hundred steps a document, where they cannot be answered by columns
# at all: they are not to fail on a large page, however little time there is.
MIN_STEPS_PER_DOCUMENT = 10_000
# The kernel counts in 64 bits.
MAX_STEPS = 1 << 62
# Shadowing needs a page's documents again. A tenth of the pages, with ten times the share of each,
# costs a tenth of unpacking them all.
SHADOW_PAGES = 0.1


@dataclass(frozen=True)
class KernelExpression:
    """`plan` is None where the kernel refused the expression, for `refused`."""

    text: str
    namespaces: Mapping[str, str]
    plan: tagmill_kernel.Expression | None
    refused: str = ""

    @cached_property
    def reference(self) -> Compiled:
        return evaluation.compile(self.text, self.namespaces)


class KernelImage:
    def __init__(
        self, source: Source, shadow: float, opened: tagmill_kernel.PartitionImage | None = None
    ) -> None:
        self._image = opened or tagmill_kernel.PartitionImage()
        self._source = source
        self._shadow = shadow
        self._slots = 0
        self._refused = 0

    @property
    def nbytes(self) -> int:
        return self._image.nbytes

    def save(self, path: Path) -> dict[str, str]:
        try:
            self._image.save(path)
        except tagmill_kernel.ImageError as error:
            raise ImageRefused(str(error)) from None
        return {"slots": f"{self._slots:x}", "refused": f"{self._refused:x}"}

    @classmethod
    def open(
        cls, path: Path, more: Mapping[str, str], source: Source, shadow: float
    ) -> KernelImage:
        try:
            image = cls(source, shadow, tagmill_kernel.PartitionImage.open(path))
        except tagmill_kernel.ImageError as error:
            raise ImageRefused(str(error)) from None
        if more.keys() != {"slots", "refused"}:
            raise ImageRefused("what belongs to the image says something else")
        image._slots, image._refused = int(more["slots"], 16), int(more["refused"], 16)
        kept = sum(1 << slot for slot in image._image.slots())
        if kept != image._slots & ~image._refused or image._refused & ~image._slots:
            raise ImageRefused("it has other slots")
        return image

    def put(self, slot: int, probes: Mapping[str, str]) -> None:
        self.remove(slot)
        if not probes:
            return
        self._slots |= 1 << slot
        try:
            self._image.put(slot, composition(probes))
        except tagmill_kernel.DocumentRefused:
            self._refused |= 1 << slot

    def remove(self, slot: int) -> None:
        self._image.remove(slot)
        self._slots &= ~(1 << slot)
        self._refused &= ~(1 << slot)

    def evaluate(
        self,
        expressions: Sequence[tuple[int, KernelExpression]],
        slots: int | None,
        note: Note,
        learn: int = 0,
        singly: bool = False,
        *,
        seconds: float = EVALUATION_SECONDS,
    ) -> Answers:
        chosen = self._slots if slots is None else self._slots & slots
        answers = Answers(documents=chosen.bit_count())
        planned = [item for item in expressions if item[1].plan is not None]
        if planned:
            among = None if chosen == self._slots else chosen
            # One call for all costs least, but says nothing about any one of them.
            for part in [[item] for item in planned] if singly else [planned]:
                note(part[0][0] if singly else EVALUATING, PAGE)
                self._by_kernel(part, among, seconds, answers)
            note(IDLE, 0)
        if chosen & self._refused:
            self._by_lxml(planned, chosen & self._refused, answers, note)
        rest = [item for item in expressions if item[1].plan is None]
        if rest and chosen:
            self._by_lxml(rest, chosen, answers, note)
        if learn & chosen:
            answers.vocabulary = self._learn(learn & chosen, note)
        if self._shadow and planned and not singly:
            self._compare(planned, chosen & ~self._refused, answers, note)
        for key in answers.failures:
            answers.members.pop(key, None)
        return answers

    def _by_kernel(
        self,
        expressions: Sequence[tuple[int, KernelExpression]],
        slots: int | None,
        seconds: float,
        answers: Answers,
    ) -> None:
        bitmap = None if slots is None else _bytes(slots)
        budget = steps(seconds, len(self._image))
        plans = [item.plan for _, item in expressions if item.plan is not None]
        found = self._image.evaluate(plans, bitmap, budget)
        for (key, _), result in zip(expressions, found, strict=True):
            if isinstance(result, tagmill_kernel.BudgetExceeded):
                answers.failures[key] = (
                    f"stopped after {budget:,} steps on {len(self._image)} nodes, which"
                    f" {seconds:g} s allow"
                )
            else:
                answers.members[key] = int.from_bytes(result, "little")

    def _by_lxml(
        self,
        expressions: Sequence[tuple[int, KernelExpression]],
        slots: int,
        answers: Answers,
        note: Note,
    ) -> None:
        found = self._ask_lxml(expressions, slots, note)
        for key, bits in found.members.items():
            answers.members[key] = answers.members.get(key, 0) | bits
        answers.failures.update(found.failures)
        answers.unreadable.update(found.unreadable)

    def _learn(self, slots: int, note: Note) -> Vocabulary:
        bitmap = None if slots == self._slots else _bytes(slots)
        vocabulary = kernel_vocabulary.build(*self._image.vocabulary(MAX_LENGTH, bitmap))
        if slots & self._refused:
            rest = self._ask_lxml([], slots & self._refused, note, learn=slots).vocabulary
            vocabulary.merge(rest or Vocabulary())
        return vocabulary

    def _ask_lxml(
        self,
        expressions: Sequence[tuple[int, KernelExpression]],
        slots: int,
        note: Note,
        learn: int = 0,
    ) -> Answers:
        image = LxmlImage()
        for slot, probes in self._source():
            if probes and slots >> slot & 1:
                image.put(slot, probes)
        compiled = [(key, item.reference) for key, item in expressions]
        return image.evaluate(compiled, slots, note, learn)

    def _compare(
        self,
        expressions: Sequence[tuple[int, KernelExpression]],
        slots: int,
        answers: Answers,
        note: Note,
    ) -> None:
        sample = _sample(self._shadow, slots)
        if not sample:
            return
        # The answer is there already: nobody fails because the reference is slow.
        reference = self._ask_lxml(expressions, sample, lambda _, slot: note(SHADOWING, slot))
        answers.shadowed = sample.bit_count()
        refused = sum(1 << slot for slot in reference.unreadable)
        for key, _ in expressions:
            if key in answers.failures:
                continue
            different = (reference.members.get(key, 0) ^ answers.members[key]) & sample | refused
            if key in reference.failures:
                different = sample
            while different:
                low = different & -different
                answers.disagreements.append((key, low.bit_length() - 1))
                different ^= low
        note(IDLE, 0)


class KernelEvaluator:
    name = "kernel"
    keeps_images = True
    version = tagmill_kernel.__version__

    def compile(self, text: str, namespaces: Mapping[str, str]) -> KernelExpression:
        try:
            return KernelExpression(text, namespaces, tagmill_kernel.Expression(text, namespaces))
        except tagmill_kernel.KernelRefused as error:
            expression = KernelExpression(text, namespaces, None, str(error.args[0]))
        # What lxml refuses, too, has no answer.
        _ = expression.reference
        return expression

    def image(self, source: Source, shadow: float = 0.0) -> KernelImage:
        return KernelImage(source, shadow)

    def open(
        self, path: Path, more: Mapping[str, str], source: Source, shadow: float
    ) -> KernelImage:
        return KernelImage.open(path, more, source, shadow)


def steps(seconds: float, documents: int) -> int:
    """The budget of one expression on so many documents, where it may take so long."""
    allowed = max(STEPS_PER_SECOND * seconds, MIN_STEPS_PER_DOCUMENT * documents)
    return int(min(allowed, MAX_STEPS))


def _bytes(slots: int) -> bytes:
    return slots.to_bytes((slots.bit_length() + 7) // 8, "little")


def _sample(share: float, slots: int) -> int:
    """A random part of the slots: about `share` of them in the long run."""
    chance = max(share, SHADOW_PAGES)
    if random.random() >= chance:  # noqa: S311 - a sample, not a secret
        return 0
    sample, rest = 0, slots
    while rest:
        low = rest & -rest
        if random.random() < share / chance:  # noqa: S311
            sample |= low
        rest ^= low
    return sample


EVALUATOR = KernelEvaluator()
