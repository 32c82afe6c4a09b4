"""Which part of the report shows which bench."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loadtest.report import planning, rebuilds, serving
from loadtest.report.pieces import Section

SECTIONS: dict[str, Callable[[str, dict[str, Any]], Section]] = {
    "rebuild": rebuilds.rebuild,
    "evaluate": rebuilds.evaluate,
    "sweep": rebuilds.sweep,
    "growth": rebuilds.growth,
    "change": serving.change,
    "preview": serving.preview,
    "polls": serving.polls,
    "cache": serving.cache,
    "batch": serving.batch,
    "fleet": serving.fleet,
    "capacity": planning.capacity,
    "check": planning.check,
    "calibrate": planning.calibrate,
}
"""By the `bench` member of a file; in the order of the page."""
