"""Bulk uploads: what is found out of lines while those before them are stored."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from django.db import transaction

from tagmill.fleet.documents import CheckedUpload
from tagmill.flows import imports, ingest
from tagmill.flows.ingest import Prepared
from tests.support.fleet import BARE, GPU, node, north, put
from tests.support.threads import done, in_thread

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_jobs")]


def test_lines_are_prepared_while_those_before_are_stored_and_come_after_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(imports, "MAX_LINES", 2)
    north("a", "b")
    put("a", "b", xml=GPU)
    prepared: list[list[str]] = []
    is_second = threading.Event()

    def prepare(checked: Sequence[CheckedUpload]) -> Prepared | None:
        found = ingest.prepare(checked)
        prepared.append([item.upload.system_id for item in checked])
        if len(prepared) == 2:
            is_second.set()
        return found

    def line(system_id: str, xml: bytes) -> bytes:
        return orjson.dumps({"system_id": system_id, "probes": {"lshw": xml.decode()}})

    # As they are stored, the second two lines would change nothing.
    lines = [line("a", BARE), line("b", BARE), line("a", GPU), line("c", GPU)]
    bulk = imports.IMPORT._replace(prepare=prepare)
    with transaction.atomic():
        # Holds the partition.
        put("other", xml=BARE)
        importing = in_thread(lambda: list(imports.import_lines(lines, bulk)))
        assert is_second.wait(30)
    found: list[dict[str, Any]] = done(importing)
    assert [item["outcome"] for item in found] == ["updated", "updated", "updated", "created"]
    (stored,) = node("a").documents.all()
    assert stored.xml == GPU.decode()
    assert prepared == [["a", "b"], ["a", "c"]]
