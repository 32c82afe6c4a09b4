"""`bench evaluate`: what one expression on one document costs, by each way to answer it.

Every arm runs on one core, over the same documents, and answers the same expressions: the real ones
that both evaluators compile. A figure is the mean over the expressions, of the median over the
repetitions. The kernel's answers are compared with lxml's, document by document.

Then every kind of definition (`kinds`), in the kernel: the dearest of them, since work that is
bounded is bounded by the dearest: by their CPU time, since they take long enough for others to come
between. lxml answers a sample of the documents.
"""

from __future__ import annotations

import gc
import statistics
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fixtures.generate import ProfileName, generate
from loadtest.bench import Bench, BenchError, Session, add_fleet, check_sizes, machine
from loadtest.benches.kinds import GENERATED, Kind, kinds
from loadtest.references.documents import NodeDocuments
from loadtest.references.libxml_postgres import libxml_postgres
from loadtest.references.xpath_exists import XpathExists
from tagmill_expressions import definition, evaluation
from tagmill_expressions import documents as composed
from tagmill_expressions.documents import composition
from tagmill_expressions.errors import DefinitionError

REAL = Path(__file__).resolve().parents[2] / "tests" / "data" / "real-xpaths.txt"
# As many nodes as a partition has by default.
IMAGE_NODES = 1024
# lxml's trees take ten times the bytes of the XML: few are held at a time.
TREES = 500
MANY = 500
# Steps a document, as a worker allows them: lxml answers what runs past them.
STEPS = 50_000
# lxml's time grows with the square of a document, or worse, for some kinds: it answers few
# documents, until an expression has taken so many seconds.
SAMPLE = 32
SAMPLE_SECONDS = 0.5
SHOWN = 10
# Few elements satisfy it, and its postings say which.
SELECTIVE = "//node[@id='display:1']"


@dataclass(frozen=True)
class EvaluateOptions:
    nodes: int
    profile: ProfileName
    seed: int
    repetitions: int
    generated: int


@dataclass
class Arm:
    """`seconds` by expression, over all documents."""

    name: str
    seconds: dict[str, float] = field(default_factory=dict)

    def us_per_document(self, nodes: int) -> float:
        return 1e6 * statistics.fmean(self.seconds.values()) / nodes

    def as_json(self, nodes: int) -> dict[str, Any]:
        return {
            "name": self.name,
            "us_per_document": round(self.us_per_document(nodes), 4),
            "expressions": len(self.seconds),
        }


class EvaluateBench:
    def __init__(self, chosen: EvaluateOptions, console: Console) -> None:
        import tagmill_kernel

        self.options = chosen
        self.kernel = tagmill_kernel
        self._console = console
        self.texts = list(_compilable(tagmill_kernel))
        self.arms: dict[str, Arm] = {}
        self.mismatches = 0

    def run(self) -> dict[str, Any]:
        say = self._console.print
        say(f"{self.options.nodes:,} nodes ({self.options.profile}), {len(self.texts)} expressions")
        self.bytes = sum(len(xml) for probes in self._nodes() for xml in probes.values())
        say("lxml: parse, evaluate", style="dim")
        reference = self._lxml()
        say("kernel: cold, warm", style="dim")
        images = self._kernel_cold()
        self._kernel_warm(images, reference)
        selective, many, parsed = self._selective(images), self._many(images), self._image_bytes
        self._kinds(images)
        del images
        self._database(reference)
        return self._result(selective, many, parsed)

    def _nodes(self) -> Iterator[dict[str, str]]:
        chosen = self.options
        return (node.probes for node in generate(chosen.nodes, chosen.seed, chosen.profile))

    # -- lxml ------------------------------------------------------------------------------------

    def _lxml(self) -> dict[str, list[bool]]:
        """The answer for each document, by expression: the reference for the other arms."""
        compiled = {text: evaluation.compile(text, {}) for text in self.texts}
        answers: dict[str, list[bool]] = {text: [] for text in self.texts}
        cached = self._arm("lxml on cached trees")
        cached.seconds = dict.fromkeys(self.texts, 0.0)
        parsing = 0.0
        for chunk in _chunks(self._nodes(), TREES):
            parsing += self._median(partial(_trees, chunk))
            trees = _trees(chunk)
            for text, expression in compiled.items():
                matches = expression.matches
                found: list[bool] = []

                def answer(
                    matches: Any = matches, trees: Any = trees, found: list[bool] = found
                ) -> None:
                    found[:] = [matches(tree) for tree in trees]

                cached.seconds[text] += self._median(answer)
                answers[text] += found
        whole = self._arm("lxml parse and evaluate")
        whole.seconds = {text: parsing + spent for text, spent in cached.seconds.items()}
        return answers

    # -- the kernel ------------------------------------------------------------------------------

    def _kernel_cold(self) -> list[Any]:
        """The time from the documents' text to the first answer, on images not asked before."""
        cold = self._arm("kernel cold")
        building, asking, images = 0.0, dict.fromkeys(self.texts, 0.0), []
        expressions = [self.kernel.Expression(text, {}) for text in self.texts]
        for chunk in _chunks(self._nodes(), IMAGE_NODES):
            building += self._median(partial(self._image, chunk))
            images.append(self._image(chunk))
        for image in images:
            # An expression's first question on an image may build what the later ones use.
            for text, expression in zip(self.texts, expressions, strict=True):
                started = time.perf_counter()
                image.evaluate([expression])
                asking[text] += time.perf_counter() - started
        cold.seconds = {text: building + spent for text, spent in asking.items()}
        self._image_bytes = sum(image.nbytes for image in images)
        return images

    def _image(self, nodes: Sequence[dict[str, str]]) -> Any:
        image = self.kernel.PartitionImage()
        for slot, probes in enumerate(nodes):
            image.put(slot, composition(probes))
        return image

    def _kernel_warm(self, images: list[Any], reference: dict[str, list[bool]]) -> None:
        warm = self._arm("kernel warm")
        for text in self.texts:
            expression = self.kernel.Expression(text, {})
            found: list[bytes] = []

            def answer(expression: Any = expression, found: list[bytes] = found) -> None:
                found[:] = [image.evaluate([expression])[0] for image in images]

            warm.seconds[text] = self._median(answer)
            self.mismatches += _differences(found, reference[text])

    def _selective(self, images: list[Any]) -> float:
        """Seconds for an attribute equality that few elements satisfy."""
        expression = self.kernel.Expression(SELECTIVE, {})
        return self._median(lambda: [image.evaluate([expression]) for image in images])

    def _many(self, images: list[Any]) -> float:
        """Seconds for MANY different expressions in one pass over each image."""
        variants = (
            f"{text} and not(//node[@id='variant-{number}'])"
            for number in range(MANY)
            for text in self.texts
        )
        expressions = [self.kernel.Expression(text, {}) for text in islice(variants, MANY)]
        started = time.perf_counter()
        for image in images:
            image.evaluate(expressions)
        return time.perf_counter() - started

    # -- every kind of definition -----------------------------------------------------------------

    def _kinds(self, images: list[Any]) -> None:
        chosen = kinds(self.options.seed, self.options.generated)
        self._console.print(f"kernel: {len(chosen)} kinds of definitions", style="dim")
        sample = _trees(list(islice(self._nodes(), SAMPLE)))
        self.kinds = [self._kind(kind, images, sample) for kind in chosen]
        self.mismatches += sum(kind["mismatches"] for kind in self.kinds)

    def _kind(self, kind: Kind, images: list[Any], sample: list[Any]) -> dict[str, Any]:
        expression = self.kernel.Expression(kind.expression, {})
        found: list[Any] = []

        def answer() -> None:
            found[:] = [
                image.evaluate([expression], budget_steps=STEPS * len(image))[0] for image in images
            ]

        seconds = self._median(answer, collected=False, clock=time.process_time)
        stopped = any(isinstance(answer, Exception) for answer in found)
        return {
            "name": kind.name,
            "expression": kind.expression,
            "us": round(1e6 * seconds / self.options.nodes, 4),
            "engine": expression.explain,
            "stopped": stopped,
            "mismatches": 0 if stopped else _sampled(kind.expression, found[0], sample),
        }

    # -- the database ----------------------------------------------------------------------------

    def _database(self, reference: dict[str, list[bool]]) -> None:
        with libxml_postgres() as url:
            if url is None:
                self._console.print("no PostgreSQL with libxml (BENCH_DATABASE_URL)")
                return
            self._console.print("xpath_exists, serial", style="dim")
            database = XpathExists(url)
            try:
                database.load(NodeDocuments(n, probes) for n, probes in enumerate(self._nodes()))
                arm = self._arm("xpath_exists serial")
                for text in self.texts:
                    answer = database.count(text)
                    arm.seconds[text] = answer.seconds
                    is_nodes = definition.check(text).type == "node-set"
                    # A relative path begins at the document there, and at its root element here.
                    if is_nodes and text.startswith("/"):
                        self.mismatches += abs(answer.matched - sum(reference[text]))
            finally:
                database.close()

    # -- the result ------------------------------------------------------------------------------

    def _arm(self, name: str) -> Arm:
        return self.arms.setdefault(name, Arm(name))

    def _median(
        self,
        work: Callable[[], Any],
        *,
        collected: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> float:
        times = []
        for _ in range(self.options.repetitions):
            if collected:
                gc.collect()
            started = clock()
            work()
            times.append(clock() - started)
        return statistics.median(times)

    def _result(self, selective: float, many: float, image_bytes: int) -> dict[str, Any]:
        nodes = self.options.nodes
        cost = {name: arm.us_per_document(nodes) for name, arm in self.arms.items()}
        ratios = {
            "cold_vs_lxml": cost["kernel cold"] / cost["lxml parse and evaluate"],
            "warm_vs_lxml_cached": cost["kernel warm"] / cost["lxml on cached trees"],
        }
        if "xpath_exists serial" in cost:
            ratios["cold_vs_xpath_exists"] = cost["kernel cold"] / cost["xpath_exists serial"]
            ratios["warm_vs_xpath_exists"] = cost["kernel warm"] / cost["xpath_exists serial"]
        return {
            "nodes": nodes,
            "profile": self.options.profile,
            "document_bytes_mean": round(self.bytes / nodes, 1),
            "arms": [arm.as_json(nodes) for arm in self.arms.values()],
            "selective_us_per_document": round(1e6 * selective / nodes, 4),
            "expressions_500_seconds": round(many, 3),
            "image_bytes_per_node": round(image_bytes / nodes, 1),
            "image_bytes_vs_xml": round(image_bytes / self.bytes, 4),
            "ratios": {name: round(value, 6) for name, value in ratios.items()},
            "kinds": self.kinds,
            "worst_kind": max(self.kinds, key=lambda kind: kind["us"]),
            "mismatches": self.mismatches,
        }


def _trees(nodes: Sequence[dict[str, str]]) -> list[Any]:
    return [composed.compose(probes) for probes in nodes]


def _sampled(text: str, bitmap: bytes, sample: list[Any]) -> int:
    """How many documents of the sample lxml answers otherwise, as far as it gets in its time."""
    compiled = evaluation.compile(text, {})
    bits, wrong = int.from_bytes(bitmap, "little"), 0
    deadline = time.perf_counter() + SAMPLE_SECONDS
    for slot, tree in enumerate(sample):
        wrong += bool(bits >> slot & 1) != compiled.matches(tree)
        if time.perf_counter() > deadline:
            break
    return wrong


def _compilable(kernel: Any) -> Iterator[str]:
    for line in REAL.read_text().splitlines():
        try:
            definition.check(line, {})
            kernel.Expression(line, {})
        except (DefinitionError, kernel.KernelRefused):
            continue
        yield line


def _chunks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def _differences(bitmaps: list[bytes], reference: list[bool]) -> int:
    wrong = 0
    for number, expected in enumerate(_chunks(reference, IMAGE_NODES)):
        bits = int.from_bytes(bitmaps[number], "little")
        wrong += sum(bool(bits >> slot & 1) != answer for slot, answer in enumerate(expected))
    return wrong


class EvaluateCommand(Bench):
    name = "evaluate"
    help = "one expression on one document: the kernel, lxml, xpath_exists"
    needs_database = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_fleet(parser, nodes=2_000)
        parser.add_argument("--repetitions", type=int, default=3, help="medians are over these")
        parser.add_argument(
            "--generated", type=int, default=GENERATED, help="combinations that are drawn at random"
        )

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        check_sizes(options, "nodes", "repetitions", "generated")
        names = ("nodes", "profile", "seed", "repetitions", "generated")
        chosen = EvaluateOptions(**{name: options[name] for name in names})
        try:
            bench = EvaluateBench(chosen, session.console)
        except ImportError as error:
            raise BenchError(f"the kernel is not built ({error}): make install") from None
        return {"bench": self.name, "machine": machine()} | bench.run()

    def show(self, console: Console, result: dict[str, Any]) -> None:
        size = result["document_bytes_mean"] / 1000
        table = Table(title=f"{result['nodes']:,} documents of {size:.1f} kB, one core")
        table.add_column("arm")
        table.add_column("us a document and expression", justify="right")
        for arm in result["arms"]:
            table.add_row(arm["name"], f"{arm['us_per_document']:,.2f}")
        console.print(table)
        for name, ratio in result["ratios"].items():
            console.print(f"{name}: {ratio:.4f}")
        worst = Table(title=f"the dearest of {len(result['kinds'])} kinds of definitions")
        worst.add_column("kind")
        worst.add_column("expression", overflow="fold")
        worst.add_column("us a document", justify="right")
        for kind in sorted(result["kinds"], key=lambda kind: kind["us"], reverse=True)[:SHOWN]:
            worst.add_row(kind["name"], escape(kind["expression"]), f"{kind['us']:,.2f}")
        console.print(worst)
        console.print(f"mismatches with lxml: {result['mismatches']}")
