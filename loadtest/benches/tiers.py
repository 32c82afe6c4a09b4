"""`bench tiers`: what each place where a worker finds a partition is worth, all in one run.

| | what | where |
|---|---|---|
| states | a rebuild by workers that are hot, warm, shared and cold | here |
| budget | hits of a tier that is too small, beside an LRU | tier_driver.py |
| writes | durable writes: through to the server, and written back | tier_driver.py |
| churn | workers that join, leave and are killed beside uploads | churn.py |
| local_first | a partition ready to evaluate, from the disk and over a network | tier_driver.py |

Answers are compared with lxml's after every state.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from api.cache import controls
from fixtures import loader
from fixtures.tags import SAMPLE_TAGS
from loadtest.bench import Bench, BenchError, Session, add_fleet, check_sizes, machine
from loadtest.benches import churn, tier_parts
from loadtest.references import documents
from loadtest.references.answers import Reference, ask_lxml, mismatches
from loadtest.rig.rig import Rig, Running, Usage, forget_workers
from tagmill import config
from tagmill_worker.cache import draining, files, folders
from tagmill_worker.cache.entries import Entry
from tagmill_worker.cache.files import Place

STATES = ("hot", "warm", "shared", "cold")
PARTS = ("states", "local_first", "budget", "writes", "churn")
MAX_EVALUATIONS = 200_000
PATIENCE_SECONDS = 300.0
# The share of cold's that the others may take, by what is measured.
TARGETS = {"shared_api": 0.1, "shared_cpu": 0.2, "shared_seconds": 0.25, "warm": 0.3, "hot": 0.1}
NAMES = {"server": "api"}


class TiersBench(Bench):
    name = "tiers"
    help = "rebuilds by workers that are hot, warm, shared and cold; tiers too small; write-back"

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_fleet(parser, profile="varied")
        parser.add_argument("--repetitions", type=int, default=3, help="medians are over these")
        parser.add_argument("--workers", type=int, default=1)
        parser.add_argument("--seconds", type=float, default=10.0, help="of each kind of writes")
        parser.add_argument("--churn-seconds", type=float, default=300.0, help="of the churn")
        parser.add_argument(
            "--only", choices=PARTS, nargs="*", default=PARTS, metavar="PART", help=", ".join(PARTS)
        )

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        check_sizes(options, "nodes", "repetitions", "workers")
        with _settings(
            TAGMILL_IMAGE_STORE=str(session.log / "images"), TAGMILL_BATCH_CACHE_BYTES="0"
        ):
            return _Run(options, session).run()

    def show(self, console: Console, result: dict[str, Any]) -> None:
        size = result["document_bytes_mean"] / 1000
        table = Table(title=f"{result['nodes']:,} nodes of {size:.1f} kB ({result['profile']})")
        for column in ("state", "1 tag", "8 tags", "CPU ms of 1 tag", "of 8"):
            table.add_column(column, justify="left" if column == "state" else "right")
        for name, found in result.get("states", {}).items():
            table.add_row(
                name,
                f"{found['seconds_1_tag']:.3f} s",
                f"{found['seconds_8_tags']:.3f} s",
                *(
                    ", ".join(f"{part} {spent:.0f}" for part, spent in found[key].items())
                    for key in ("cpu_ms", "cpu_ms_8_tags")
                ),
            )
        console.print(table)
        for name, ratio in result.get("ratios", {}).items():
            wanted = f" (at most {TARGETS[name]})" if name in TARGETS else ""
            console.print(f"{name}: {ratio:.3f} of cold{wanted}")
        tier_parts.show(console, result)
        if found := result.get("churn"):
            churn.show(console, found)
        console.print(f"mismatches with lxml: {result['mismatches']}")


class _Run:
    def __init__(self, options: dict[str, Any], session: Session) -> None:
        self._options = options
        self._session = session
        self._definitions = {tag.name: tag.definition for tag in SAMPLE_TAGS}
        self._names = list(self._definitions)
        self._used: dict[tuple[str, int], list[Usage]] = {}
        self._wrong = 0

    def run(self) -> dict[str, Any]:
        options = self._options
        self._say(f"generating {options['nodes']:,} nodes ({options['profile']})")
        loader.load(options["nodes"], seed=options["seed"], profile=options["profile"])
        reference = ask_lxml(self._definitions, MAX_EVALUATIONS)
        found: dict[str, Any] = {
            "bench": "tiers",
            "machine": machine(),
            "nodes": options["nodes"],
            "profile": options["profile"],
            "document_bytes_mean": round(documents.mean_bytes(), 1),
            "workers": options["workers"],
        }
        with Rig(self._session.url, self._session.log) as rig:
            rig.create_tags(self._definitions)
            with rig.stack(0) as running:
                self._prepare(running)
                rig.tidy()
                if "states" in options["only"]:
                    found |= self._states(running, reference)
                found |= tier_parts.measure(running, self._kept, options, self._say)
            if "churn" in options["only"]:
                found["churn"] = self._churn(rig)
        return {**found, "mismatches": self._wrong}

    def _churn(self, rig: Rig) -> dict[str, Any]:
        """As `bench churn`, by workers that share their images."""
        self._say("workers that join, leave and are killed beside uploads")
        asked = {"workers": 3, "seconds": self._options["churn_seconds"], **churn.PACE}
        made = churn.Churn(asked, self._say, self._session.log / "churn")
        found = made.measure(rig, self._definitions)
        self._wrong += found["wrong"]
        return found

    @property
    def _kept(self) -> Path:
        return self._session.log / "kept"

    def _prepare(self, running: Running) -> None:
        """Workers that have all of it, on their disks and shared."""
        self._say("evaluating, keeping and sharing all of it")
        self._start(running, self._kept)
        running.settle()
        running.rebuild(self._names[:1])
        deadline = time.monotonic() + PATIENCE_SECONDS
        for directory in sorted(self._kept.iterdir()):
            while not _is_complete(directory):
                if time.monotonic() > deadline:
                    raise BenchError("the workers do not keep their images")
                time.sleep(0.1)
            if not draining.ask(directory, PATIENCE_SECONDS) or draining.dirty(directory):
                raise BenchError("the workers do not share their images: see their log")
        running.stack.stop_workers()

    def _states(self, running: Running, reference: Reference) -> dict[str, Any]:
        for repetition in range(self._options["repetitions"]):
            for names in (self._names[:1], self._names):
                for state in ("warm", "shared", "cold"):
                    self._say(f"{state}, {len(names)} tags, run {repetition + 1}")
                    empty = self._session.log / f"{state}-{repetition}-{len(names)}"
                    self._start(running, {"warm": self._kept, "shared": empty, "cold": None}[state])
                    # The server has the documents that it sent before; it, too, is to be cold.
                    controls.flush(controls.Scope())
                    self._measure(state, running, names)
                    self._compare(reference)
                    if state == "warm":
                        # What documents have in common is made with the second question.
                        running.rebuild(names)
                        self._measure("hot", running, names)
                        self._compare(reference)
                    running.stack.stop_workers()
        states = {state: self._state(state) for state in STATES}
        return {"states": states, "ratios": ratios(states)}

    def _start(self, running: Running, cache: Path | None) -> None:
        forget_workers()
        count = self._options["workers"]
        running.stack.start_workers(count, cache=cache)
        running.rig.wait(lambda: running.stack.parked_polls() >= count, running.stack)

    def _measure(self, state: str, running: Running, names: Sequence[str]) -> None:
        self._used.setdefault((state, len(names)), []).append(running.measure(names))

    def _compare(self, reference: Reference) -> None:
        self._wrong += mismatches(reference)

    def _state(self, state: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for count, suffix in ((1, ""), (len(self._names), "_8_tags")):
            used = self._used[state, count]
            seconds = statistics.median(item.seconds for item in used)
            found[f"seconds{suffix or '_1_tag'}"] = round(seconds, 4)
            found[f"cpu_ms{suffix}"] = {
                NAMES.get(name, name): round(
                    1000 * statistics.median(item.cpu_seconds[name] for item in used), 1
                )
                for name in used[0].cpu_seconds
            }
        return found

    def _say(self, what: str) -> None:
        self._session.console.print(what, style="dim")


def ratios(states: dict[str, Any]) -> dict[str, float]:
    """What each state takes of cold's, of one tag."""
    cold = states["cold"]
    total = sum(cold["cpu_ms"].values())
    found = {
        state: round(sum(states[state]["cpu_ms"].values()) / total, 4) for state in ("hot", "warm")
    }
    shared = states["shared"]
    return {
        "shared_api": round(shared["cpu_ms"]["api"] / max(cold["cpu_ms"]["api"], 0.1), 4),
        "shared_cpu": round(sum(shared["cpu_ms"].values()) / total, 4),
        "shared_seconds": round(shared["seconds_1_tag"] / cold["seconds_1_tag"], 4),
        **found,
    }


def _is_complete(directory: Path) -> bool:
    """Whether every page on the disk has its image."""
    places = [
        Place(directory, name, partition)
        for name in draining.incarnations(directory)
        for partition in files.partitions(directory / name)
    ]
    found = [folders.find(place) for place in places]
    return bool(found) and all(item.chain and Entry.of(item).is_complete for item in found)


@contextlib.contextmanager
def _settings(**values: str) -> Iterator[None]:
    """Settings of the processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    config.load.cache_clear()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        config.load.cache_clear()
