"""Bulk uploads, changes and deletions: NDJSON lines in, a verdict for each out, in constant memory.

While the database stores some lines, another thread finds out what the next ones come to, as far as
that takes no lock, and a third one reads and checks those after them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

import orjson
from django.db import connection

from tagmill.config import load
from tagmill.errors import Invalid, TagmillError, TooLarge
from tagmill.fleet.documents import CheckedDocument, CheckedUpload, Upload, Verdict, check
from tagmill.flows import ingest, recalled
from tagmill.flows.ingest import Deletion, Prepared

Item = TypeVar("Item")

# One transaction holds at most this much: its locks last well under a second. Twice as much is
# held ahead of it.
MAX_LINES = 256
MAX_BYTES = 4 * 1024 * 1024
# The threads that read and prepare lines.
AHEAD = "import-ahead"


# What a line becomes for those who may not do everything. Raises what it is refused for.
Guard = Callable[[Upload], Upload]


def unguarded(upload: Upload) -> Upload:
    return upload


class Bulk(NamedTuple):
    """What is done with the lines: the `fields` that one may have, the `outcomes` that it may come
    to, and how those that go together are prepared, without a lock, and stored."""

    fields: tuple[str, ...]
    outcomes: tuple[str, ...]
    prepare: Callable[[Sequence[CheckedUpload]], Prepared | None]
    store: Callable[[Sequence[CheckedUpload], Prepared | None], list[Verdict]]


def _delete(checked: Sequence[CheckedUpload], _: Prepared | None) -> list[Verdict]:
    uploads = (item.upload for item in checked)
    return ingest.delete_all([Deletion(each.system_id, each.expects) for each in uploads])


IMPORT = Bulk(
    ("system_id", "cluster", "hostname", "kind", "probes"),
    ("created", "updated", "unchanged", "refused"),
    ingest.prepare,
    lambda checked, prepared: ingest.store_checked(checked, prepared=prepared),
)
UPDATE = Bulk(
    IMPORT.fields[:4],
    IMPORT.outcomes[1:],
    lambda checked: ingest.prepare(checked, create=False),
    lambda checked, prepared: ingest.store_checked(checked, create=False, prepared=prepared),
)
DELETE = Bulk(IMPORT.fields[:1], ("deleted", "refused"), lambda _: None, _delete)


class _Line(NamedTuple):
    """`checked` or `error`, never both."""

    number: int
    system_id: str | None
    checked: CheckedUpload | None = None
    error: TagmillError | None = None


class _Chunk(NamedTuple):
    """Lines that are stored together, and what the good ones come to."""

    lines: list[_Line]
    checked: list[CheckedUpload]
    prepared: Prepared | None


def import_lines(
    lines: Iterable[bytes], bulk: Bulk = IMPORT, guard: Guard = unguarded
) -> Iterator[dict[str, Any]]:
    """For each line `{"system_id", "cluster"?, "hostname"?, "kind"?, "probes"?: {probe: XML}}`, of
    which `bulk` says what it may have, its verdict `{"line" (from 1), "system_id", "outcome",
    "rev"?, "settled"?, "error"?: {"code", "detail", ...}}`.

    Blank lines have none. Good lines are stored whatever the others are. `lines` is used by one
    other thread; it may be waiting there still when this ends with an error.
    """
    prepared = _prepared(_ahead(_chunks(lines, bulk, guard)), bulk)
    if not connection.in_atomic_block:
        # Another thread does not see what this transaction has stored.
        prepared = _ahead(prepared)
    before: set[str] = set()
    with contextlib.closing(prepared):
        for chunk in prepared:
            names = {item.upload.system_id for item in chunk.checked}
            # It was prepared while the chunk before it was stored.
            is_late = bool(names & before)
            yield from _store(chunk._replace(prepared=None) if is_late else chunk, bulk)
            before = names


def _ahead(chunks: Generator[Item]) -> Generator[Item]:
    """Each is made by a thread of its own, while the one before is used; never more than one."""
    wanted: SimpleQueue[bool] = SimpleQueue()
    made: SimpleQueue[Item | BaseException | None] = SimpleQueue()

    def make() -> None:
        try:
            while wanted.get():
                try:
                    made.put(next(chunks, None))
                except BaseException as error:
                    made.put(error)
        finally:
            chunks.close()
            connection.close()

    threading.Thread(target=make, name=AHEAD, daemon=True).start()
    try:
        wanted.put(True)
        while (chunk := made.get()) is not None:
            if isinstance(chunk, BaseException):
                raise chunk
            wanted.put(True)
            yield chunk
    finally:
        wanted.put(False)


def _prepared(chunks: Generator[list[_Line]], bulk: Bulk) -> Generator[_Chunk]:
    with contextlib.closing(chunks):
        for lines in chunks:
            checked = [line.checked for line in lines if line.checked]
            yield _Chunk(lines, checked, bulk.prepare(checked))


def _chunks(lines: Iterable[bytes], bulk: Bulk, guard: Guard) -> Generator[list[_Line]]:
    """Lines that are stored together."""
    chunk: list[_Line] = []
    size = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        chunk.append(_parse(number, line, bulk, guard))
        size += len(line)
        if len(chunk) >= MAX_LINES or size >= MAX_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _parse(number: int, line: bytes, bulk: Bulk, guard: Guard) -> _Line:
    system_id: str | None = None
    try:
        limit = load().import_line_bytes
        if len(line) > limit:
            raise TooLarge(
                f"the line is longer than {limit} bytes (TAGMILL_IMPORT_LINE_BYTES)", limit=limit
            )
        key = recalled.key_of(line) if bulk is IMPORT else None
        if key and (known := _known.get(key, lambda: _documents(line, bulk))):
            system_id = known.upload.system_id
            return _Line(number, system_id, CheckedUpload(guard(known.upload), known.documents))
        given = _given(line, bulk)
        if isinstance(given.get("system_id"), str):
            system_id = given["system_id"]
        upload = _upload(given, bulk)
        checked = check(guard(upload))
        if key:
            _known.keep(key, upload, checked.documents)
        return _Line(number, system_id, checked)
    except TagmillError as error:
        return _Line(number, system_id, error=error)


def _documents(line: bytes, bulk: Bulk) -> Mapping[str, CheckedDocument | None]:
    """What a line that was checked before brings."""
    return check(_upload(_given(line, bulk), bulk)).documents


def _given(line: bytes, bulk: Bulk) -> dict[str, Any]:
    try:
        given = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise Invalid(f"not JSON: {error}") from None
    if not isinstance(given, dict):
        raise Invalid(f"a line is an object with {', '.join(bulk.fields)}")
    return given


def _upload(given: dict[str, Any], bulk: Bulk) -> Upload:
    if unknown := given.keys() - set(bulk.fields):
        name = min(unknown)
        raise Invalid(f"unknown field {name!r}; known: {', '.join(bulk.fields)}", field=name)
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
        probes=probes,
    )


def _store(chunk: _Chunk, bulk: Bulk) -> Iterator[dict[str, Any]]:
    verdicts = iter(bulk.store(chunk.checked, chunk.prepared))
    for line in chunk.lines:
        if line.checked is None:
            yield _answer(line, "refused", None, line.error)
        else:
            verdict = next(verdicts)
            answer = _answer(line, verdict.outcome, verdict.rev, verdict.error)
            if verdict.settled is not None:
                answer["settled"] = verdict.settled
            yield answer


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


# What all imports into this process have met.
_known = recalled.Lines()
