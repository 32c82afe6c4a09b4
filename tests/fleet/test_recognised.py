"""A document that is stored already is recognised by its digest, and not parsed again."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest

from fixtures.generate import generate
from tagmill.errors import InvalidDocument
from tagmill.fleet import clusters
from tagmill.fleet.documents import Upload, Verdict
from tagmill.fleet.models import Document
from tagmill.flows import ingest
from tagmill.matches import verdicts
from tagmill_expressions import documents
from tests.support.fleet import BARE, node

pytestmark = pytest.mark.django_db

DEEP = b"<list>" + b"<node>" * 20 + b"</node>" * 20 + b"</list>"
DECLARED = b'<?xml version="1.0" encoding="UTF-8"?>' + DEEP
OTHER = DEEP.replace(b"list", b"LIST")


@pytest.fixture(autouse=True)
def fleet(db: None, configure: Callable[..., None]) -> None:
    """The node `a` has a document that is refused now, where it is parsed."""
    clusters.create("north")
    stored("created", DEEP)
    configure(document_depth=8)


def upload(xml: bytes, **given: str) -> Verdict:
    (verdict,) = ingest.store([Upload("a", probes={"lshw": xml}, **given)])
    return verdict


def stored(outcome: str, xml: bytes, **given: str) -> None:
    verdict = upload(xml, **given)
    assert (verdict.outcome, verdict.error) == (outcome, None)


def refused(xml: bytes) -> None:
    verdict = upload(xml)
    assert verdict.outcome == "refused" and isinstance(verdict.error, InvalidDocument)
    assert "nested deeper" in verdict.error.detail


@pytest.mark.parametrize(
    "xml",
    [
        DEEP,
        DECLARED,
        b"\xef\xbb\xbf" + DECLARED,
        b"<!DOCTYPE list SYSTEM 'list.dtd'>" + DEEP,
        DEEP.decode().encode("utf-16"),
        b'<?xml version="1.0" encoding="latin1"?>' + DEEP,
    ],
)
def test_what_would_be_stored_as_it_is_already_changes_nothing(xml: bytes) -> None:
    rev = node("a").rev
    stored("unchanged", xml)
    assert node("a").rev == rev


def test_one_that_differs_is_parsed_whatever_else_is_as_it_was() -> None:
    refused(OTHER)
    refused(DEEP + b"\n")
    ((bad, good)) = ingest.store(
        [Upload("a", probes={"lshw": DEEP, "lldp": DEEP}), Upload("b", probes={"lshw": BARE})]
    )
    assert (bad.outcome, good.outcome) == ("refused", "created")
    assert Document.objects.filter(node__system_id="a").count() == 1


@pytest.mark.skipif(not verdicts.HAS_KERNEL, reason="without the kernel, lxml parses all of them")
def test_lxml_is_asked_only_where_the_kernel_is_not_sure(
    monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None]
) -> None:
    configure(document_depth=32)

    def asked(*_: object) -> NoReturn:
        raise AssertionError("lxml is asked")

    monkeypatch.setattr(documents, "_parser", asked)
    (made,) = generate(1, seed=5)
    stored("updated", made.probes["lshw"].encode())
    for other in (b"<a xmlns='u'/>", b"<a>", b"<a>" * 33 + b"</a>" * 33):
        with pytest.raises(AssertionError, match="lxml is asked"):
            upload(other)


def test_what_is_refused_without_a_parser_is_refused_still() -> None:
    entity = b"<!DOCTYPE list [<!ENTITY x 'y'>]>" + DEEP
    assert upload(entity).outcome == upload(b"\0" + DEEP).outcome == "refused"
    probes = {"lshw": b"<list>", "Bad": BARE}
    (verdict,) = ingest.store([Upload("c", probes=probes)])
    # The first of them is what is told.
    assert isinstance(verdict.error, InvalidDocument)


def test_a_node_with_the_same_document_is_described_and_moved() -> None:
    stored("updated", DEEP, hostname="rack1")
    assert node("a").hostname == "rack1"
    clusters.create("south")
    stored("updated", DEEP, cluster="south")
    stored("unchanged", DEEP, cluster="south")
    assert Document.objects.get(node=node("a")).xml == DEEP.decode()


def test_other_probes_come_and_go_beside_it() -> None:
    for probes, outcome in (
        ({"lshw": DEEP, "lldp": BARE}, "updated"),
        ({"lshw": DEEP}, "unchanged"),
        ({"lshw": DEEP, "lldp": None}, "updated"),
    ):
        (verdict,) = ingest.store([Upload("a", probes=probes)])
        assert (verdict.outcome, verdict.error) == (outcome, None)
    assert Document.objects.get(node=node("a")).probe == "lshw"


def test_a_document_of_a_deleted_node_or_of_another_one_is_not_recognised() -> None:
    (other,) = ingest.store([Upload("b", probes={"lshw": DEEP})])
    assert other.outcome == "refused"
    ingest.delete("a")
    refused(DEEP)
    stored("created", BARE)
    refused(DEEP)
