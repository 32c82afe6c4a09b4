"""Unit costs of partitions that are read as images, from what `bench tiers` measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from loadtest.bench import BenchError
from loadtest.planner.costs import PROCESSES, Costs
from loadtest.planner.demand import State
from loadtest.planner.fitting import least_squares

READ: tuple[State, ...] = ("warm", "shared")
# Rebuilds of one tag and of eight: what they differ from a hot one does not depend on tags.
MEASURED = ("cpu_ms", "cpu_ms_8_tags")


def with_tiers(costs: Costs, runs: Sequence[Mapping[str, Any]]) -> Costs:
    """The same, with what a node costs in the states that `bench tiers` measured, beside a hot one.
    Runs of several profiles tell what a node costs from what each of its own bytes does; one run
    alone says all of it by bytes. Raises BenchError."""
    seconds = {process: dict(costs.seconds[process]) for process in PROCESSES}
    try:
        nodes = [int(run["nodes"]) for run in runs]
        own = [costs.profiles[str(run["profile"])]["wire_bytes"] for run in runs]
        for process in PROCESSES:
            for state in READ:
                spent = [_seconds(run, state, process) for run in runs]
                seconds[process] |= _fitted(state, nodes, own, spent)
    except (KeyError, TypeError, ValueError) as error:
        raise BenchError(f"not a result of `bench tiers` ({error!r})") from None
    return replace(costs, seconds=seconds)


def _seconds(run: Mapping[str, Any], state: State, process: str) -> float:
    """CPU seconds of a rebuild, beside those of one by workers that hold all in memory."""
    states = run["states"]
    more = fmean(
        float(states[state][name][process]) - float(states["hot"][name][process])
        for name in MEASURED
    )
    return max(0.0, more / 1000)


def _fitted(
    state: State, nodes: Sequence[int], own: Sequence[float], spent: Sequence[float]
) -> dict[str, float]:
    names = [f"{state}_node", f"{state}_own_byte"]
    rows = [[float(count), count * each] for count, each in zip(nodes, own, strict=True)]
    if len(set(own)) == 1:
        rows = [[0.0, whole] for _, whole in rows]
    found = least_squares(rows, spent)
    return {name: float(f"{cost:.4g}") for name, cost in zip(names, found, strict=True) if cost}
