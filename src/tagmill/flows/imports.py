"""Bulk upload: NDJSON lines in, a verdict for each out, in constant memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from tagmill.config import load
from tagmill.errors import Invalid, TagmillError, TooLarge
from tagmill.fleet.documents import Upload
from tagmill.flows import ingest

# One transaction holds at most this much: its locks last well under a second.
CHUNK_LINES = 256
CHUNK_BYTES = 4 * 1024 * 1024
FIELDS = ("system_id", "cluster", "hostname", "kind", "probes")


@dataclass(frozen=True)
class _Line:
    """`upload` or `error`, never both."""

    number: int
    system_id: str | None
    upload: Upload | None = None
    error: TagmillError | None = None


def import_lines(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """For each line `{"system_id", "cluster"?, "hostname"?, "kind"?, "probes"?: {probe: XML}}` its
    verdict `{"line" (from 1), "system_id", "outcome", "rev"?, "settled"?, "error"?: {"code",
    "detail", ...}}`.

    Blank lines have none. Good lines are stored whatever the others are.
    """
    chunk: list[_Line] = []
    size = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        chunk.append(_parse(number, line))
        size += len(line)
        if len(chunk) >= CHUNK_LINES or size >= CHUNK_BYTES:
            yield from _store(chunk)
            chunk, size = [], 0
    yield from _store(chunk)


def _parse(number: int, line: bytes) -> _Line:
    system_id: str | None = None
    try:
        limit = load().import_line_bytes
        if len(line) > limit:
            raise TooLarge(
                f"the line is longer than {limit} bytes (TAGMILL_IMPORT_LINE_BYTES)", limit=limit
            )
        try:
            given = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise Invalid(f"not JSON: {error}") from None
        if not isinstance(given, dict):
            raise Invalid('a line is an object: {"system_id": ..., "probes": {"lshw": "<xml>"}}')
        if isinstance(given.get("system_id"), str):
            system_id = given["system_id"]
        return _Line(number, system_id, _upload(given))
    except TagmillError as error:
        return _Line(number, system_id, error=error)


def _upload(given: dict[str, Any]) -> Upload:
    unknown = given.keys() - set(FIELDS)
    if unknown:
        name = min(unknown)
        raise Invalid(f"unknown field {name!r}; known: {', '.join(FIELDS)}", field=name)
    if "system_id" not in given:
        raise Invalid("system_id is missing", field="system_id")
    for name in ("system_id", "cluster", "hostname", "kind"):
        if given.get(name) is not None and not isinstance(given[name], str):
            raise Invalid(f"{name} must be a string", field=name)
    probes = given.get("probes") or {}
    if not isinstance(probes, dict) or not all(
        xml is None or isinstance(xml, str) for xml in probes.values()
    ):
        raise Invalid("probes must be an object of XML documents (strings)", field="probes")
    return Upload(
        system_id=given["system_id"] or "",
        cluster=given.get("cluster"),
        hostname=given.get("hostname"),
        kind=given.get("kind"),
        probes={probe: None if xml is None else xml.encode() for probe, xml in probes.items()},
    )


def _store(chunk: list[_Line]) -> Iterator[dict[str, Any]]:
    verdicts = iter(ingest.store([line.upload for line in chunk if line.upload]))
    for line in chunk:
        if line.upload is None:
            yield _answer(line, "refused", None, line.error)
        else:
            verdict = next(verdicts)
            answer = _answer(line, verdict.outcome, verdict.rev, verdict.error)
            yield answer if verdict.settled is None else {**answer, "settled": verdict.settled}


def _answer(
    line: _Line, outcome: str, rev: int | None, error: TagmillError | None
) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "line": line.number,
        "system_id": line.system_id,
        "outcome": outcome,
    }
    if rev is not None:
        answer["rev"] = rev
    if error is not None:
        problem = {"code": error.code, "status": error.status, "detail": error.detail}
        answer["error"] = {**problem, **error.extra}
    return answer
