"""What a bulk import answers: a verdict for each line, then a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from api.encoding import dumps
from tagmill.flows import imports

OUTCOMES = ("created", "updated", "unchanged", "refused")


def answers(lines: Iterable[bytes]) -> Iterator[bytes]:
    """NDJSON: the verdicts of `imports.import_lines`, then `{"summary": {"lines": n, "created":
    n, "updated": n, "unchanged": n, "refused": n}}`. A body cut short has no summary."""
    counts: Counter[str] = Counter()
    for verdict in imports.import_lines(lines):
        counts[verdict["outcome"]] += 1
        yield _line(verdict)
    yield _line({"summary": {"lines": counts.total(), **{name: counts[name] for name in OUTCOMES}}})


def _line(value: object) -> bytes:
    return dumps(value) + b"\n"
