"""Bulk upload by lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from tagmill.fleet import clusters
from tagmill.fleet.models import Node
from tagmill.flows import imports
from tests.support.fleet import GPU, node

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _north(db: None) -> None:
    clusters.create("north")


def line(system_id: object, **fields: Any) -> bytes:
    return orjson.dumps({"system_id": system_id, **fields}) + b"\n"


def outcomes(*lines: bytes) -> list[tuple[int, str | None, str]]:
    found = imports.import_lines(lines)
    return [(item["line"], item["system_id"], item["outcome"]) for item in found]


def test_every_line_has_a_verdict_and_blank_ones_have_none() -> None:
    xml = GPU.decode()
    assert outcomes(
        line("a", probes={"lshw": xml}),
        b"\n",
        b"{broken\n",
        line("b", cluster="north", hostname="h", kind="machine", probes={"lshw": xml}),
        b"[]\n",
        line("a", probes={"lshw": xml}),
        line("c", colour="red"),
        line("d", probes={"lshw": "<a>"}),
        line(7),
        b"{}\n",
        line("e"),
    ) == [
        (1, "a", "created"),
        (3, None, "refused"),
        (4, "b", "created"),
        (5, None, "refused"),
        (6, "a", "unchanged"),
        (7, "c", "refused"),
        (8, "d", "refused"),
        (9, None, "refused"),
        (10, None, "refused"),
        (11, "e", "created"),
    ]
    assert set(Node.objects.values_list("system_id", flat=True)) == {"a", "b", "e"}


def test_a_refused_document_names_its_line_and_column() -> None:
    (verdict,) = imports.import_lines([line("a", probes={"lshw": "<a>\n<b></a>"})])
    assert verdict["error"]["code"] == "invalid_document"
    assert (verdict["error"]["line"], verdict["line"]) == (2, 1)
    assert verdict["error"]["probe"] == "lshw"


def test_null_deletes_a_probe() -> None:
    xml = GPU.decode()
    outcomes(line("a", probes={"lshw": xml, "lldp": xml}))
    outcomes(line("a", probes={"lldp": None}))
    assert [item.probe for item in node("a").documents.all()] == ["lshw"]


def test_a_line_that_adds_a_probe_too_many_is_refused() -> None:
    xml = GPU.decode()
    lines = [line("a", probes={f"p{number}": xml}) for number in range(17)]
    *_, last = imports.import_lines(lines)
    assert (last["line"], last["outcome"]) == (17, "refused")
    assert (last["error"]["code"], last["error"]["field"]) == ("invalid", "probes")


def test_lines_are_read_a_chunk_at_a_time() -> None:
    read = 0

    def lines() -> Iterator[bytes]:
        nonlocal read
        for i in range(3 * imports.CHUNK_LINES):
            read += 1
            yield line(f"n{i}")

    verdicts = imports.import_lines(lines())
    assert next(verdicts)["outcome"] == "created"
    assert read == imports.CHUNK_LINES
    assert Node.objects.count() == imports.CHUNK_LINES
    assert len(list(verdicts)) == 3 * imports.CHUNK_LINES - 1


def test_few_large_lines_are_a_chunk() -> None:
    read = 0
    xml = f"<a>{'x' * (imports.CHUNK_BYTES // 4)}</a>"

    def lines() -> Iterator[bytes]:
        nonlocal read
        for i in range(8):
            read += 1
            yield line(f"n{i}", probes={"lshw": xml})

    next(imports.import_lines(lines()))
    assert read == 4


def test_a_line_that_is_too_long_is_refused() -> None:
    (verdict,) = imports.import_lines([b'{"system_id": "' + b"a" * (16 << 20) + b'"}'])
    assert verdict["error"]["code"] == "too_large"
