"""`bench rebuild`: Tagmill against `xpath_exists`, on the same documents, in one run.

Every arm answers the same questions. Tagmill's answers are compared node by node with lxml's, and
`xpath_exists`'s count with lxml's where the definition is a node-set (it is wrong elsewhere).
"""

from __future__ import annotations

import statistics
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from fixtures import loader
from fixtures.generate import ProfileName
from fixtures.tags import SAMPLE_TAGS
from loadtest.bench import Bench, Session, add_fleet, check_sizes, machine
from loadtest.references import documents
from loadtest.references.answers import Reference, ask_lxml, mismatches
from loadtest.references.libxml_postgres import libxml_postgres
from loadtest.references.xpath_exists import XpathExists
from loadtest.rig.rig import Rig, Running
from tagmill.fleet import packing
from tagmill.tags.models import NodeTag
from tagmill.work.models import Worker
from tagmill_expressions import definition

WORKERS = 2


@dataclass
class Arm:
    """One way to answer: its median over the repetitions, and what each part of it used."""

    name: str
    tags: int
    times: list[float] = field(default_factory=list)
    matched: int = 0
    cpu_seconds: dict[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return statistics.median(self.times)

    def as_json(self, nodes: int) -> dict[str, Any]:
        return {
            "name": self.name,
            "tags": self.tags,
            "seconds": round(self.seconds, 4),
            "nodes_per_second": round(nodes / self.seconds, 1),
            "matched": self.matched,
            "times": [round(seconds, 4) for seconds in self.times],
            "cpu_seconds": self.cpu_seconds,
        }


@dataclass(frozen=True)
class RebuildOptions:
    nodes: int
    profile: ProfileName
    seed: int
    repetitions: int


class RebuildBench:
    """One run. `one` is a single tag (what the origin measured), `all` the eight of the demo."""

    def __init__(self, chosen: RebuildOptions, session: Session) -> None:
        self.options = chosen
        self._session = session
        self._definitions = {tag.name: tag.definition for tag in SAMPLE_TAGS}
        self._names = list(self._definitions)
        self._arms: dict[str, Arm] = {}

    def run(self) -> dict[str, Any]:
        self._say(f"generating {self.options.nodes:,} nodes ({self.options.profile})")
        loader.load(self.options.nodes, seed=self.options.seed, profile=self.options.profile)
        # As servers do in the background.
        packing.run_all()
        self._say("asking lxml, the reference")
        reference = ask_lxml(self._definitions)
        self._database_arms(reference)
        with Rig(self._session.url, self._session.log) as rig:
            self._tagmill_arms(rig)
        return self._result(mismatches(reference) + self._wrong_counts)

    # -- xpath_exists ----------------------------------------------------------------------------

    def _database_arms(self, reference: Reference) -> None:
        self._wrong_counts = 0
        with libxml_postgres() as url:
            if url is None:
                self._say("no PostgreSQL with libxml (BENCH_DATABASE_URL): no xpath_exists arms")
                return
            self._say("loading the documents into a PostgreSQL with libxml")
            database = XpathExists(url)
            try:
                database.load(documents.stream())
                for parallel, label in ((False, "serial"), (True, "all cores")):
                    self._say(f"xpath_exists, {label}")
                    self._database_arm(database, reference, parallel, label)
            finally:
                database.close()

    def _database_arm(
        self, database: XpathExists, reference: Reference, parallel: bool, label: str
    ) -> None:
        one = self._arm(f"xpath_exists {label}, 1 tag", 1)
        every = self._arm(f"xpath_exists {label}, {len(SAMPLE_TAGS)} tags", len(SAMPLE_TAGS))
        for repetition in range(self.options.repetitions):
            # One question takes as long as another, nearly: only the single tag is repeated.
            questions = SAMPLE_TAGS if repetition == 0 else SAMPLE_TAGS[:1]
            total = 0.0
            for tag in questions:
                answer = database.count(tag.definition, parallel=parallel)
                total += answer.seconds
                if tag is SAMPLE_TAGS[0]:
                    one.times.append(answer.seconds)
                    one.matched = answer.matched
                if repetition == 0:
                    every.matched += answer.matched
                    is_nodes = definition.check(tag.definition).type == "node-set"
                    if is_nodes and answer.matched != len(reference.members[tag.name]):
                        self._wrong_counts += 1
            if repetition == 0:
                every.times.append(total)

    # -- Tagmill ---------------------------------------------------------------------------------

    def _tagmill_arms(self, rig: Rig) -> None:
        rig.create_tags(self._definitions)
        with rig.stack(WORKERS) as running:
            running.settle()
        for repetition in range(self.options.repetitions):
            for label, names in self._questions():
                self._say(f"Tagmill, {label}, run {repetition + 1} of {self.options.repetitions}")
                with rig.stack(WORKERS) as running:
                    self._measure(f"tagmill cold, {label}", running, names)
                    # The other worker may hold a partition that this one is given: once to settle.
                    running.rebuild(names)
                    self._measure(f"tagmill warm, {label}", running, names)

    def _questions(self) -> list[tuple[str, Sequence[str]]]:
        return [("1 tag", self._names[:1]), (f"{len(self._names)} tags", self._names)]

    def _measure(self, name: str, running: Running, names: Sequence[str]) -> None:
        used = running.measure(names)
        arm = self._arm(name, len(names))
        arm.times.append(used.seconds)
        arm.cpu_seconds = used.cpu_seconds
        arm.matched = NodeTag.objects.filter(tag__name__in=names).count()

    # -- the result ------------------------------------------------------------------------------

    def _arm(self, name: str, tags: int) -> Arm:
        return self._arms.setdefault(name, Arm(name, tags))

    def _result(self, mismatches: int) -> dict[str, Any]:
        ratios = {}
        for state in ("cold", "warm"):
            # What the demo does is the figure; a single tag, as the origin measured, is beside it.
            for suffix, label in (("", f"{len(self._names)} tags"), ("_1_tag", "1 tag")):
                base = self._arms.get(f"xpath_exists serial, {label}")
                if base:
                    ratio = self._arms[f"tagmill {state}, {label}"].seconds / base.seconds
                    ratios[f"{state}_vs_xpath_exists_serial{suffix}"] = round(ratio, 4)
        return {
            "bench": "rebuild",
            "machine": machine(),
            "nodes": self.options.nodes,
            "profile": self.options.profile,
            "document_bytes_mean": round(documents.mean_bytes(), 1),
            "workers": WORKERS,
            "evaluator": ", ".join(sorted({worker.evaluator for worker in Worker.objects.all()})),
            "arms": [arm.as_json(self.options.nodes) for arm in self._arms.values()],
            "ratios": ratios,
            "mismatches": mismatches,
        }

    def _say(self, what: str) -> None:
        self._session.console.print(what, style="dim")


class RebuildCommand(Bench):
    name = "rebuild"
    help = "a rebuild, cold and warm, against xpath_exists on the same documents"

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_fleet(parser)
        parser.add_argument("--repetitions", type=int, default=3, help="medians are over these")

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        check_sizes(options, "nodes", "repetitions")
        chosen = RebuildOptions(
            **{name: options[name] for name in ("nodes", "profile", "seed", "repetitions")}
        )
        return RebuildBench(chosen, session).run()

    def show(self, console: Console, result: dict[str, Any]) -> None:
        table = Table(
            title=f"{result['nodes']:,} nodes of {result['document_bytes_mean'] / 1000:.1f} kB, "
            f"{WORKERS} workers with {result['evaluator']}"
        )
        for column in ("arm", "seconds", "nodes/s", "matched", "CPU seconds by process"):
            table.add_column(column, justify="left" if column == "arm" else "right")
        for arm in result["arms"]:
            cpu = ", ".join(f"{name} {seconds:.2f}" for name, seconds in arm["cpu_seconds"].items())
            table.add_row(
                arm["name"],
                f"{arm['seconds']:.3f}",
                f"{arm['nodes_per_second']:,.0f}",
                f"{arm['matched']:,}",
                cpu,
            )
        console.print(table)
        for name, ratio in result["ratios"].items():
            console.print(f"{name}: {ratio:.3f}")
        console.print(f"mismatches with lxml: {result['mismatches']}")
