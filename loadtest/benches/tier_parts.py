"""The parts of `bench tiers` that need a reactor: each in a process of its own (tier_driver.py)."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from loadtest.bench import BenchError
from loadtest.benches import tier_driver
from loadtest.rig.relay import relay
from loadtest.rig.rig import Running
from tagmill.fleet import incarnation

LOCAL_DELAY = 0.010
WRITES_DELAY, WRITES_BITS = 0.020, 50e6
BUDGETS = (0.25, 0.5, 0.75, 0.9, 1.0)
PATIENCE_SECONDS = 900
SPAWN = multiprocessing.get_context("spawn")
# So that every write is newer than what was shared before.
MORE_REVS = 1_000_000


def measure(
    running: Running, kept: Path, options: dict[str, Any], say: Callable[[str], None]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    common = {
        "incarnation": str(incarnation.current()),
        "token": running.stack.token,
        "kept": str(sorted(kept.iterdir())[0]),
    }
    if "local_first" in options["only"]:
        say("a partition ready to evaluate, from the disk and over a network")
        with relay(running.stack.url, LOCAL_DELAY) as url:
            found["local_first"] = _driven("local_first", {**common, "url": url})
    if "budget" in options["only"]:
        say("a tier that is too small")
        found["budget"] = _driven("budget", {**common, "ratios": BUDGETS})
    if "writes" in options["only"]:
        running.rig.row("UPDATE partition SET rev = rev + %s RETURNING 1", MORE_REVS)
        found["writes"] = {}
        asked = {**common, "seconds": options["seconds"]}
        for name, delay, bits in (("direct", 0.0, 1e10), ("relay", WRITES_DELAY, WRITES_BITS)):
            say(f"durable writes, {name}")
            with relay(running.stack.url, delay, bits) as url:
                found["writes"][name] = _driven("writes", {**asked, "url": url})
    return found


def _driven(what: str, asked: dict[str, Any]) -> Any:
    """In a process of its own: a reactor runs once."""
    with tempfile.TemporaryDirectory(prefix="tagmill-tiers-") as directory:
        here, there = SPAWN.Pipe(duplex=False)
        question = {**asked, "what": what, "directory": directory}
        process = SPAWN.Process(target=tier_driver.main, args=(question, there), daemon=True)
        process.start()
        there.close()
        try:
            found, problem = here.recv() if here.poll(PATIENCE_SECONDS) else (None, "no end")
        except EOFError:
            found, problem = None, "its process ended"
        finally:
            process.kill()
            process.join()
    if problem:
        raise BenchError(f"{what}: {problem}")
    return found


def show(console: Console, result: dict[str, Any]) -> None:
    if local := result.get("local_first"):
        console.print(
            f"a partition ready to evaluate: {local['local_ms']:.1f} ms from the disk, "
            f"{local['shared_ms']:.1f} shared, {local['remote_ms']:.1f} as documents "
            f"({local['ratio']:.1f} times)"
        )
    for row in result.get("budget", []):
        console.print(
            f"budget {row['budget']:.0%}: {row['hits']:.1%} hit; an LRU {row['lru_hits']:.1%}"
        )
    for name, found in result.get("writes", {}).items():
        for kind in ("through", "absorb", "steady"):
            row = found[kind]
            console.print(
                f"writes, {name}, {kind}: {row['mb_per_second']:.1f} MB/s, standard deviation "
                f"{row['deviation']:.0%}, {row['iops']:.1f} a second, {row['latency_ms']:.1f} ms"
            )
        console.print(f"writes, {name}: steady is {found['ratio']:.1f} times write-through")
