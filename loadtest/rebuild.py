"""`bench rebuild`: Tagmill against `xpath_exists`, on the same documents, in one run.

Every arm answers the same questions. Tagmill's answers are compared node by node with lxml's, and
`xpath_exists`'s count with lxml's where the definition is a node-set (it is wrong elsewhere).
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from django.contrib.auth.models import User
from knox.models import AuthToken
from rich.console import Console

from expressions import definition, evaluation
from expressions import documents as composed
from fixtures import loader
from fixtures.generate import ProfileName
from fixtures.tags import SAMPLE_TAGS
from loadtest import documents, processes
from loadtest.http import Api
from loadtest.libxml_postgres import libxml_postgres
from loadtest.stack import Stack, StackError, free_port, running
from loadtest.xpath_exists import XpathExists
from tagmill.rebuilds import workers
from tagmill.tags.models import NodeTag

WORKERS = 2
PATIENCE_SECONDS = 900


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
class Plan:
    nodes: int
    profile: ProfileName
    seed: int
    repetitions: int
    log: Path


class RebuildBench:
    """One run. `one` is a single tag (what the origin measured), `all` the eight of the demo."""

    def __init__(self, plan: Plan, url: str, console: Console) -> None:
        self.plan = plan
        self.console = console
        self._listener = psycopg.connect(url, autocommit=True)
        self._listener.execute("LISTEN tagmill_progress")
        self._names = [tag.name for tag in SAMPLE_TAGS]
        self._arms: dict[str, Arm] = {}

    def run(self) -> dict[str, Any]:
        self._say(f"generating {self.plan.nodes:,} nodes ({self.plan.profile})")
        loader.load(self.plan.nodes, seed=self.plan.seed, profile=self.plan.profile)
        user = User.objects.create_superuser("bench")
        self._api_token = AuthToken.objects.create(user, expiry=None)[1]
        self._worker_token = workers.issue_token("bench", "all")[1]
        self._say("asking lxml, the reference")
        reference = self._reference()
        self._database_arms(reference)
        mismatches = self._tagmill_arms(reference)
        return self._result(mismatches + self._wrong_counts)

    # -- the reference ---------------------------------------------------------------------------

    def _reference(self) -> dict[str, set[int]]:
        compiled = {tag.name: evaluation.compile(tag.definition, {}) for tag in SAMPLE_TAGS}
        answers: dict[str, set[int]] = {name: set() for name in compiled}
        for node in documents.stream():
            tree = composed.compose(node.probes)
            for name, expression in compiled.items():
                if expression.matches(tree):
                    answers[name].add(node.node_id)
        return answers

    # -- xpath_exists ----------------------------------------------------------------------------

    def _database_arms(self, reference: dict[str, set[int]]) -> None:
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
        self, database: XpathExists, reference: dict[str, set[int]], parallel: bool, label: str
    ) -> None:
        one = self._arm(f"xpath_exists {label}, 1 tag", 1)
        every = self._arm(f"xpath_exists {label}, {len(SAMPLE_TAGS)} tags", len(SAMPLE_TAGS))
        for repetition in range(self.plan.repetitions):
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
                    if is_nodes and answer.matched != len(reference[tag.name]):
                        self._wrong_counts += 1
            if repetition == 0:
                every.times.append(total)

    # -- Tagmill ---------------------------------------------------------------------------------

    def _tagmill_arms(self, reference: dict[str, set[int]]) -> int:
        with self._stack() as (_, api):
            for tag in SAMPLE_TAGS:
                api.post("tags/", {"name": tag.name, "definition": tag.definition})
            self._wait(lambda: all(tag["state"] == "ready" for tag in api.get("tags/")["results"]))
        for repetition in range(self.plan.repetitions):
            for label, names in self._questions():
                self._say(f"Tagmill, {label}, run {repetition + 1} of {self.plan.repetitions}")
                # New processes: the workers hold nothing, and the server has nothing cached.
                with self._stack() as (stack, api):
                    self._measure(f"tagmill cold, {label}", stack, api, names)
                    # The other worker may hold a partition that this one is given: once to settle.
                    self._rebuild(api, names)
                    self._measure(f"tagmill warm, {label}", stack, api, names)
        return self._mismatches(reference)

    def _questions(self) -> list[tuple[str, Sequence[str]]]:
        return [("1 tag", self._names[:1]), (f"{len(self._names)} tags", self._names)]

    def _stack(self) -> contextlib.AbstractContextManager[tuple[Stack, Api]]:
        return _started(
            Stack(f"127.0.0.1:{free_port()}", self._worker_token, self.plan.log),
            self._api_token,
            self._wait,
        )

    def _measure(self, name: str, stack: Stack, api: Api, names: Sequence[str]) -> None:
        roots = stack.pids()
        postmaster = processes.postmaster()
        if postmaster:
            roots["database"] = postmaster
        before = processes.cpu_seconds(roots)
        arm = self._arm(name, len(names))
        arm.times.append(self._rebuild(api, names))
        arm.cpu_seconds = processes.difference(processes.cpu_seconds(roots), before)
        arm.matched = NodeTag.objects.filter(tag__name__in=names).count()

    def _rebuild(self, api: Api, names: Sequence[str]) -> float:
        """Seconds from the REST call to the moment after the last commit."""
        started = time.perf_counter()
        rebuild = api.post("rebuilds/", {"tags": list(names)})["uuid"]
        self._wait(lambda: self._state(rebuild) == "complete")
        return time.perf_counter() - started

    def _state(self, rebuild: str) -> str:
        row = self._listener.execute(
            "SELECT state FROM rebuild WHERE uuid = %s", [rebuild]
        ).fetchone()
        return str(row[0]) if row else ""

    def _wait(self, condition: Callable[[], bool]) -> None:
        """Until `condition` holds, looking again after each commit that made progress."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise StackError(f"no end after {PATIENCE_SECONDS} s; see {self.plan.log}")
            for _ in self._listener.notifies(timeout=0.25, stop_after=1):
                pass

    def _mismatches(self, reference: dict[str, set[int]]) -> int:
        """Nodes on which Tagmill and lxml differ, over all tags."""
        wrong = 0
        for name in self._names:
            nodes = NodeTag.objects.filter(tag__name=name).values_list("node_id", flat=True)
            wrong += len(set(nodes) ^ reference[name])
        return wrong

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
            "nodes": self.plan.nodes,
            "profile": self.plan.profile,
            "document_bytes_mean": round(documents.mean_bytes(), 1),
            "workers": WORKERS,
            "arms": [arm.as_json(self.plan.nodes) for arm in self._arms.values()],
            "ratios": ratios,
            "mismatches": mismatches,
        }

    def _say(self, what: str) -> None:
        self.console.print(what, style="dim")

    def close(self) -> None:
        self._listener.close()


@contextlib.contextmanager
def _started(
    stack: Stack, token: str, wait: Callable[[Callable[[], bool]], None]
) -> Iterator[tuple[Stack, Api]]:
    """The server and both workers, waiting for work; they are stopped on the way out."""
    with running(stack):
        stack.start_server()
        stack.start_workers(WORKERS)
        wait(lambda: stack.parked_polls() >= WORKERS)
        yield stack, Api(stack.url, token)
