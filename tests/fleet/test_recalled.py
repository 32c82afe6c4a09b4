"""Lines of bulk uploads that were met before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from tagmill.errors import Invalid
from tagmill.fleet import clusters
from tagmill.fleet.documents import Upload, check
from tagmill.flows import imports, ingest
from tagmill.flows.recalled import MAX_DOCUMENTS, MIN_BYTES, Documents, Lines, key_of
from tests.support.fleet import node

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _north(db: None) -> None:
    clusters.create("north")


def xml(text: str) -> str:
    return f"<list><node id='core'>{text}</node><!--{'x' * MIN_BYTES}--></list>"


def line(system_id: str = "a", **probes: str | None) -> bytes:
    return orjson.dumps({"system_id": system_id, "probes": probes})


def outcomes(*lines: bytes, **options: Any) -> list[str]:
    return [item["outcome"] for item in imports.import_lines(lines, **options)]


def stored(probe: str = "lshw") -> str | None:
    return node("a").documents.get(probe=probe).xml


def nobody() -> Documents:
    raise AssertionError("it was read")


def reading(upload: Upload) -> tuple[Callable[[], Documents], list[None]]:
    read: list[None] = []

    def documents() -> Documents:
        read.append(None)
        return check(upload).documents

    return documents, read


def test_a_line_whose_documents_are_stored_is_not_read() -> None:
    lines, key = Lines(), b"key"
    upload = Upload("a", "north", probes={"lshw": xml("1"), "gone": None})
    assert lines.get(key, nobody) is None
    lines.keep(key, upload, check(upload).documents)
    ingest.store([upload])
    known = lines.get(key, nobody)
    assert known is not None
    assert [item.outcome for item in ingest.store_checked([known])] == ["unchanged"]

    ingest.store([Upload("a", probes={"lshw": xml("2")})])
    documents, read = reading(upload)
    known = lines.get(key, documents)
    assert known is not None
    assert [item.outcome for item in ingest.store_checked([known])] == ["updated"]
    assert (stored(), read) == (xml("1"), [None])


def test_a_line_that_comes_again_says_what_it_said() -> None:
    first, second = line(lshw=xml("1"), lldp=xml("1")), line(lshw=xml("2"), lldp=None)
    assert outcomes(first, first, second, first) == ["created", "unchanged", "updated", "updated"]
    assert (stored(), stored("lldp")) == (xml("1"), xml("1"))
    assert outcomes(second, second, first) == ["updated", "unchanged", "updated"]
    ingest.delete("a")
    assert outcomes(first) == ["created"]
    assert (stored(), stored("lldp")) == (xml("1"), xml("1"))


def test_who_may_not_is_refused_what_another_has_sent() -> None:
    known = line(lshw=xml("1"))
    assert outcomes(known, known) == ["created", "unchanged"]

    def guard(upload: Upload) -> Upload:
        raise Invalid("not there")

    (verdict,) = imports.import_lines([known], guard=guard)
    assert (verdict["outcome"], verdict["system_id"]) == ("refused", "a")
    assert verdict["error"]["detail"] == "not there"
    assert outcomes(known, bulk=imports.UPDATE) == ["refused"], "it has a field too many there"


def test_lines_are_forgotten_where_there_are_too_many_and_some_are_not_kept() -> None:
    lines = Lines(2)
    upload = Upload("a", probes={"lshw": xml("1")})

    def keep(*keys: str) -> None:
        for key in keys:
            lines.keep(key.encode(), upload, check(upload).documents)

    def known(*keys: str) -> list[bool]:
        return [lines.get(key.encode(), nobody) is not None for key in keys]

    keep("a", "b", "c")
    assert known("a") == [True], "and it is among the newer ones now"
    keep("d", "e", "f")
    assert known("a", "b", "c") == [False] * 3
    assert known("d", "e", "f") == [True] * 3
    assert len(lines) <= 4

    many = Upload("a", probes={f"p{number}": xml("1") for number in range(MAX_DOCUMENTS + 1)})
    lines.keep(b"many", many, check(many).documents)
    lines.keep(b"none", Upload("a"), {})
    assert known("many", "none") == [False, False]
    assert key_of(b"x" * (MIN_BYTES - 1)) is None
