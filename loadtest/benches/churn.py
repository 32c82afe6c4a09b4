"""`bench churn`: workers that join, leave and are killed, one after the other, beside uploads.

How much of the fleet has another owner after each change, what is fetched for it, and whether any
upload is refused or any answer is wrong. At most the part of one worker and five points may move.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from fixtures import loader
from fixtures.tags import SAMPLE_TAGS
from loadtest import bench
from loadtest.bench import Bench, BenchError, Session, add_fleet, check_sizes, machine
from loadtest.references.answers import ask_lxml, mismatches
from loadtest.rig.changes import Changes
from loadtest.rig.clients import Ask, Clients
from loadtest.rig.http import Api, ApiProblem
from loadtest.rig.rig import Rig, Running
from tagmill.flows import maintenance
from tagmill.work import membership
from tagmill.work.models import Worker

KINDS = ("join", "leave", "join", "kill")
SIGNALS = {"leave": signal.SIGTERM, "kill": signal.SIGKILL}
MAX_SECONDS = 3600
PACE = {"every": 5.0, "uploads": 50.0}
MAX_EVALUATIONS = 200_000
CLIENTS = 4
PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 0.2
# A worker that is killed is silent for so long before it has lost its share.
LEASE_SECONDS, HEARTBEAT_SECONDS = 4, 1
# Small ones, so that a worker's part is hardly rounded.
SLOTS = 128
# What may move beside one worker's part.
SLACK = 0.05


class ChurnBench(Bench):
    name = "churn"
    help = "workers that join, leave and are killed beside uploads: what moves, what is wrong"

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_fleet(parser)
        parser.add_argument("--workers", type=int, default=3, help="at the start; at least 2")
        parser.add_argument("--seconds", type=float, default=300.0)
        parser.add_argument(
            "--every", type=float, default=PACE["every"], help="seconds between changes"
        )
        parser.add_argument("--uploads", type=float, default=PACE["uploads"], help="a second")

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        check_sizes(options, "nodes")
        if not 2 <= options["workers"] <= 16:  # noqa: PLR2004 - said by the message
            raise BenchError("--workers is 2 to 16")
        for name in ("seconds", "every", "uploads"):
            if not 0 < options[name] <= MAX_SECONDS:
                raise BenchError(f"--{name} is above 0, and at most {MAX_SECONDS:,}")
        return _run(options, session)

    def show(self, console: Console, result: dict[str, Any]) -> None:
        show(console, result["churn"])

    def fault(self, result: dict[str, Any]) -> str | None:
        found = result["churn"]
        if found["uploads_refused"]:
            return f"{found['uploads_refused']} uploads were refused"
        return super().fault(result)


def show(console: Console, found: dict[str, Any]) -> None:
    console.print(
        f"{found['changes']} changes of the membership: the most that moved is "
        f"{found['moved_share']:.1%}, {found['above_part']:+.1%} beside one worker's part "
        f"(at most {SLACK:+.0%})"
    )
    console.print(
        f"{found['uploads']:,} uploads ({found['uploads_per_second']:.1f} a second), "
        f"{found['uploads_refused']} refused, {found['wrong']} answers wrong; "
        f"{found['fetched_bytes'] / 1e6:.1f} MB fetched, a rebuild took "
        f"{found['rebuild_seconds']:.2f} s in the end"
    )


@dataclass
class _Moves:
    """What each change of the membership moved: its share of all partitions, and one worker's
    part."""

    found: list[tuple[float, float]] = field(default_factory=list)
    _epoch: int = 0
    _owners: dict[int, int] = field(default_factory=dict)

    def look(self) -> None:
        owners, epoch = membership.owners(), membership.epoch()
        if epoch == self._epoch:
            return
        moved = [key for key, owner in self._owners.items() if owners.get(key) != owner]
        workers = max(len(set(self._owners.values())), len(set(owners.values())))
        if self._owners and moved:
            self.found.append((len(moved) / len(self._owners), 1 / workers))
        self._epoch, self._owners = epoch, owners


def _run(options: dict[str, Any], session: Session) -> dict[str, Any]:
    def say(what: str) -> None:
        session.console.print(what, style="dim")

    say(f"generating {options['nodes']:,} nodes ({options['profile']})")
    with bench.settings(partition_slots=SLOTS):
        loader.load(options["nodes"], seed=options["seed"], profile=options["profile"])
    definitions = {tag.name: tag.definition for tag in SAMPLE_TAGS}
    with Rig(session.url, session.log) as rig:
        rig.create_tags(definitions)
        found = Churn(options, say).measure(rig, definitions)
    shown = {key: options[key] for key in ("nodes", "profile", "workers", "seconds", "every")}
    return {
        **{"bench": "churn", "machine": machine(), **shown},
        **{"churn": found, "mismatches": found["wrong"]},
    }


class Churn:
    """`asked`: `workers`, `seconds`, `every` and `uploads`, as the options of the bench. `cache`:
    where each worker has a directory of its own, if it has."""

    def __init__(
        self, asked: Mapping[str, Any], say: Callable[[str], None], cache: Path | None = None
    ) -> None:
        self._asked = asked
        self._say = say
        self._cache = cache
        self._moves = _Moves()
        self._refused = 0
        self._names = itertools.count(1)

    def measure(self, rig: Rig, definitions: Mapping[str, str]) -> dict[str, Any]:
        """The tags are there, and no worker is."""
        brief = bench.settings(lease_seconds=LEASE_SECONDS, heartbeat_seconds=HEARTBEAT_SECONDS)
        with brief, rig.stack(0) as running:
            found = self._churned(running, list(definitions))
        self._say("asking lxml, the reference")
        return {**found, "wrong": mismatches(ask_lxml(definitions, MAX_EVALUATIONS))}

    def _churned(self, running: Running, names: list[str]) -> dict[str, Any]:
        alive = [self._join(running) for _ in range(self._asked["workers"])]
        self._until(running, lambda: _ready() == len(alive))
        running.settle()
        before = running.sent_bytes()
        self._moves.look()
        self._say(f"changes for {self._asked['seconds']:g} s")
        began = time.perf_counter()
        with Clients(CLIENTS, self._connect(running), PATIENCE_SECONDS) as crowd:
            for kind in itertools.cycle(KINDS):
                if time.perf_counter() - began > self._asked["seconds"]:
                    break
                if kind == "join":
                    alive.append(self._join(running))
                else:
                    running.stack.end_worker(alive.pop(0), SIGNALS[kind])
                running.api.post("rebuilds/", {"tags": names[:1]})
                self._pass(running, self._asked["every"])
        lasted = time.perf_counter() - began
        crowd.check()
        self._until(running, lambda: _ready() == len(alive))
        running.settle()
        sent = len(crowd.seconds())
        moved = self._moves.found or [(0.0, 1.0)]
        return {
            "changes": len(self._moves.found),
            "moved_share": round(max(share for share, _ in moved), 4),
            "above_part": round(max(share - part for share, part in moved), 4),
            "moves": [[round(share, 4), round(part, 4)] for share, part in self._moves.found],
            "fetched_bytes": round(running.sent_bytes() - before),
            "uploads": sent,
            "uploads_per_second": round(sent / lasted, 1),
            "uploads_refused": self._refused,
            "rebuild_seconds": round(running.rebuild(names[:1]), 3),
        }

    def _join(self, running: Running) -> str:
        name = f"worker-{next(self._names)}"
        running.stack.start_worker(name, cache=self._cache)
        return name

    def _pass(self, running: Running, seconds: float) -> None:
        """The time, and what a server does now and then."""
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            running.stack.check()
            maintenance.reap()
            maintenance.place()
            maintenance.sweep()
            self._moves.look()
            time.sleep(LOOK_SECONDS)

    def _until(self, running: Running, condition: Any) -> None:
        deadline = time.perf_counter() + PATIENCE_SECONDS
        while not condition():
            if time.perf_counter() > deadline:
                raise BenchError("the workers are not ready: see their log")
            self._pass(running, LOOK_SECONDS)

    def _connect(self, running: Running) -> Any:
        changes, pause = Changes(), CLIENTS / self._asked["uploads"]

        @contextlib.contextmanager
        def connect(number: int) -> Iterator[Ask]:
            api = Api(running.stack.url, running.rig.api_token)
            mine = changes.series(number, CLIENTS)
            due = time.perf_counter()

            def ask() -> float:
                nonlocal due
                due = max(due + pause, time.perf_counter() - 1)
                time.sleep(max(0.0, due - time.perf_counter()))
                began = time.perf_counter()
                try:
                    changes.send(api, next(mine))
                except ApiProblem:
                    self._refused += 1
                return time.perf_counter() - began

            try:
                yield ask
            finally:
                api.close()

        return connect


def _ready() -> int:
    return Worker.objects.filter(is_ready=True, id__in=set(membership.owners().values())).count()
