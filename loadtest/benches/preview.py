"""`bench preview`: the whole answer to somebody who types a definition, and what that costs others.

Every preview is one request over HTTP with `Prefer: wait`, for an expression that nobody has asked
about before, against a fleet that the workers hold already. Then a rebuild of all tags is timed
alone, and while clients preview without pause.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import statistics
import threading
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from fixtures import loader
from fixtures.generate import ProfileName
from loadtest.bench import (
    Bench,
    BenchError,
    Session,
    add_fleet,
    check_sizes,
    machine,
    percentile,
    progress,
    settings,
)
from loadtest.benches.evaluate import REAL
from loadtest.references.answers import ask_lxml
from loadtest.rig import definitions
from loadtest.rig.clients import Ask, Clients
from loadtest.rig.http import Api
from loadtest.rig.rig import Rig, Running
from tagmill.fleet.models import Partition
from tagmill_expressions import definition
from tagmill_expressions.errors import DefinitionError

WAIT_SECONDS = 60
# The server answers after WAIT_SECONDS at the latest: who does not wait longer hears nothing of it.
HTTP_SECONDS = WAIT_SECONDS + 30
# Those whose counts are compared with lxml's on every document.
CHECKED = 2
# When each thing happened, by the database's clock, which is this machine's.
TIMES = """
SELECT extract(epoch FROM v.created_at),
       extract(epoch FROM min(m.evaluated_at)), extract(epoch FROM max(m.evaluated_at))
FROM preview v JOIN match m ON m.expression_id = v.expression_id
WHERE v.uuid = %s
GROUP BY v.id
"""


@dataclass(frozen=True)
class PreviewOptions:
    nodes: int
    profile: ProfileName
    seed: int
    previews: int
    workers: int
    clients: int
    tags: int
    slots: int | None


@dataclass
class Sample:
    """Seconds. `phases`: until the request was stored, until the first and the last evaluation was
    stored, until the answer was there."""

    definition: str
    seconds: float
    nodes: int
    phases: dict[str, float] = field(default_factory=dict)


class PreviewRun:
    def __init__(self, chosen: PreviewOptions, session: Session) -> None:
        self.options = chosen
        self._session = session
        self._tags = definitions.definitions(chosen.tags)
        self._texts = unseen()
        self._next_text = threading.Lock()

    def run(self) -> dict[str, Any]:
        chosen = self.options
        self._say(f"generating {chosen.nodes:,} nodes ({chosen.profile})")
        loader.load(chosen.nodes, seed=chosen.seed, profile=chosen.profile)
        # No client of a bench is somebody who types: they ask as fast as they are answered.
        with (
            settings(previews_per_minute=1_000_000),
            Rig(self._session.url, self._session.log) as rig,
        ):
            rig.create_tags(self._tags)
            with rig.stack(chosen.workers) as running:
                running.settle()
                self._warm(running)
                samples = self._measure(running)
                rebuild = self._contention(running) if chosen.clients else None
        self._say("asking lxml, the reference")
        wrong = self._wrong(samples)
        return self._result(samples, rebuild, wrong)

    def _warm(self, running: Running) -> None:
        """Each worker has met every partition that it will be given."""
        names = list(self._tags)
        for _ in range(2):
            running.rebuild(names)
        with self._connected(running) as api:
            for _ in range(3):
                self.preview(api)

    def _measure(self, running: Running) -> list[Sample]:
        found = []
        with self._connected(running) as api, progress(self._session.console) as bar:
            task = bar.add_task("previews", total=self.options.previews)
            for _ in range(self.options.previews):
                began = time.time()
                body, sample = self.preview(api)
                row = running.rig.row(TIMES, body["uuid"])
                if row is not None:
                    marks = [began, *(float(value) for value in row), began + sample.seconds]
                    names = ("asked", "first_result", "last_result", "answered")
                    sample.phases = {
                        name: after - before
                        for name, (before, after) in zip(
                            names, itertools.pairwise(marks), strict=True
                        )
                    }
                found.append(sample)
                bar.advance(task)
        return found

    @contextlib.contextmanager
    def _connected(self, running: Running) -> Iterator[Api]:
        api = Api(running.stack.url, running.rig.api_token, HTTP_SECONDS)
        with contextlib.closing(api):
            yield api

    def preview(self, api: Api, client: str = "bench") -> tuple[Any, Sample]:
        # A generator runs in one thread at a time, and raises ValueError in the others.
        with self._next_text:
            text = next(self._texts)
        began = time.perf_counter()
        body = api.post("previews/", {"definition": text, "client": client})
        if body["state"] == "evaluating":
            body = api.get(f"previews/{body['uuid']}", Prefer=f"wait={WAIT_SECONDS}")
        seconds = time.perf_counter() - began
        if body["state"] != "complete":
            raise BenchError(f"a preview was not complete after {WAIT_SECONDS} s: {body}")
        return body, Sample(text, seconds, body["node_count"])

    # -- previews against a rebuild ----------------------------------------------------------------

    def _contention(self, running: Running) -> dict[str, Any]:
        names = list(self._tags)
        self._say("a rebuild alone")
        alone = [running.rebuild(names) for _ in range(3)]
        self._say(f"rebuilds while {self.options.clients} clients preview without pause")
        connect = functools.partial(self._client, running)
        with Clients(self.options.clients, connect, HTTP_SECONDS) as clients:
            # They are all in the middle of it.
            clients.wait(running.stack.check)
            beside = [running.rebuild(names) for _ in range(3)]
            clients.check()
            seconds = clients.seconds()
        ratio = statistics.median(beside) / statistics.median(alone)
        return {
            "clients": self.options.clients,
            "tags": self.options.tags,
            "alone_seconds": [round(item, 3) for item in alone],
            "with_previews_seconds": [round(item, 3) for item in beside],
            "ratio": round(ratio, 3),
            "previews": len(seconds),
            "preview_p50_ms": _ms(percentile(seconds, 0.5)),
            "preview_p95_ms": _ms(percentile(seconds, 0.95)),
        }

    @contextlib.contextmanager
    def _client(self, running: Running, number: int) -> Iterator[Ask]:
        with self._connected(running) as api:
            yield lambda: self.preview(api, f"client {number}")[1].seconds

    # -- the result ------------------------------------------------------------------------------

    def _wrong(self, samples: list[Sample]) -> int:
        chosen = {str(number): item for number, item in enumerate(samples[:CHECKED])}
        found = ask_lxml({name: item.definition for name, item in chosen.items()})
        return sum(len(found.members[name]) != item.nodes for name, item in chosen.items())

    def _result(
        self, samples: list[Sample], rebuild: dict[str, Any] | None, wrong: int
    ) -> dict[str, Any]:
        seconds = sorted(sample.seconds for sample in samples)
        phases = {
            name: _ms(statistics.median(sample.phases[name] for sample in samples))
            for name in samples[0].phases
        }
        return {
            "bench": "preview",
            "machine": machine(),
            "nodes": self.options.nodes,
            "p50_ms": _ms(percentile(seconds, 0.5)),
            "p95_ms": _ms(percentile(seconds, 0.95)),
            "previews": len(samples),
            "workers": self.options.workers,
            "partitions": Partition.objects.count(),
            "phases_p50_ms": phases,
            "samples_ms": [_ms(sample.seconds) for sample in samples],
            "rebuild": rebuild,
            "mismatches": wrong,
        }

    def _say(self, what: str) -> None:
        self._session.console.print(what, style="dim")


def unseen() -> Iterator[str]:
    """What people really wrote, over and over, each time with one more operand: no two alike, and
    nobody has asked for one before."""
    number = itertools.count(1)
    while True:
        for text in _real():
            yield f"({text}) or //node[@id='bench:{next(number)}']"


@functools.cache
def _real() -> list[str]:
    found = []
    for line in REAL.read_text().splitlines():
        # Some are syntax errors.
        with contextlib.suppress(DefinitionError):
            definition.check(line, {})
            found.append(line)
    return found


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


class PreviewBench(Bench):
    name = "preview"
    help = "the whole answer to a preview, and a rebuild while clients preview"

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_fleet(parser)
        parser.add_argument("--previews", type=int, default=50)
        parser.add_argument("--workers", type=int, default=2)
        parser.add_argument(
            "--clients", type=int, default=10, help="that preview beside a rebuild; 0 leaves it out"
        )
        parser.add_argument("--tags", type=int, default=100, help="that a rebuild evaluates")
        parser.add_argument("--slots", type=int, help="slots of a partition")

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        check_sizes(options, "nodes", "previews", "workers", "tags")
        check_sizes(options, "clients", least=0)
        chosen = PreviewOptions(
            **{name: options[name] for name in PreviewOptions.__dataclass_fields__}
        )
        if chosen.slots is None:
            return PreviewRun(chosen, session).run()
        with settings(partition_slots=chosen.slots):
            return PreviewRun(chosen, session).run()

    def show(self, console: Console, result: dict[str, Any]) -> None:
        table = Table(title=f"{result['nodes']:,} nodes in {result['partitions']} partitions")
        table.add_column("preview")
        table.add_column("ms", justify="right")
        table.add_row("p50", f"{result['p50_ms']:.0f}")
        table.add_row("p95", f"{result['p95_ms']:.0f}")
        for name, milliseconds in result["phases_p50_ms"].items():
            table.add_row(f"  {name.replace('_', ' ')}", f"{milliseconds:.0f}")
        console.print(table)
        rebuild = result["rebuild"]
        if rebuild:
            console.print(
                f"a rebuild takes {rebuild['ratio']:.2f} of its time while {rebuild['clients']} "
                f"clients preview (p50 {rebuild['preview_p50_ms']:.0f} ms, "
                f"p95 {rebuild['preview_p95_ms']:.0f} ms)"
            )
        console.print(f"counts that are not lxml's: {result['mismatches']}")
