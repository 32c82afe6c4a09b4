"""What a bulk upload answers: a verdict for each line, then a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from api.encoding import dumps
from tagmill.flows import imports
from tagmill.flows.imports import Bulk, Guard


def answers(
    lines: Iterable[bytes], bulk: Bulk = imports.IMPORT, guard: Guard = imports.unguarded
) -> Iterator[bytes]:
    """NDJSON: the verdicts of `imports.import_lines`, then `{"summary": {"lines": n, ...}}` with
    the number of each outcome. A body cut short has no summary."""
    counts: Counter[str] = Counter()
    for verdict in imports.import_lines(lines, bulk, guard):
        counts[verdict["outcome"]] += 1
        yield _line(verdict)
    found = {name: counts[name] for name in bulk.outcomes}
    yield _line({"summary": {"lines": counts.total(), **found}})


def _line(value: object) -> bytes:
    return dumps(value) + b"\n"
