"""Unit costs from what rebuilds were seen to use: least squares, and how far the fit is off."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

# The step in which a process's CPU time is counted.
MIN_SECONDS = 0.01
# A share of a rebuild that no plan would notice: a process's error is measured by no less.
MIN_SHARE = 0.1
MAX_STEPS = 20_000


def least_squares(
    rows: Sequence[Sequence[float]], values: Sequence[float], least: Sequence[float] = ()
) -> list[float]:
    """x >= 0 with the least sum of ((row . x - value) / scale)^2, by coordinate descent. A scale is
    the value, but no less than what `least` says of it."""
    floors = least or [0.0] * len(values)
    weights = [1 / max(MIN_SECONDS, *pair) for pair in zip(values, floors, strict=True)]
    scaled = [[cell * weight for cell in row] for row, weight in zip(rows, weights, strict=True)]
    wanted = [value * weight for value, weight in zip(values, weights, strict=True)]
    # Columns of length 1, so that units of very different sizes converge alike.
    norms = [sum(row[n] ** 2 for row in scaled) ** 0.5 or 1.0 for n in range(len(rows[0]))]
    columns = [[row[n] / norm for row in scaled] for n, norm in enumerate(norms)]
    found = [0.0] * len(columns)
    left = list(wanted)
    for _ in range(MAX_STEPS):
        largest = 0.0
        for n, column in enumerate(columns):
            step = sum(cell * rest for cell, rest in zip(column, left, strict=True))
            step = max(step, -found[n])
            found[n] += step
            left = [rest - step * cell for cell, rest in zip(column, left, strict=True)]
            largest = max(largest, abs(step))
        if largest < 1e-12:  # noqa: PLR2004 - far below any cost
            break
    return [value / norm for value, norm in zip(found, norms, strict=True)]


def relative(predicted: float, measured: float, whole: float) -> float:
    """How far a process's CPU seconds are off, by what it used, or by a tenth of the rebuild."""
    scale = max(MIN_SECONDS, measured, MIN_SHARE * whole)
    return abs(predicted - measured) / scale


def medians(errors: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: round(statistics.median(found), 3) for name, found in errors.items()}
