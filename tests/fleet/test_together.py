"""Changes of nodes that arrive in several threads share a transaction, and each has its outcome."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from tagmill.errors import AlreadyExists, Invalid, NotFound, PreconditionFailed
from tagmill.fleet.documents import Upload, Verdict
from tagmill.fleet.models import Node
from tagmill.flows import ingest, together
from tagmill.flows.ingest import Deletion
from tagmill.flows.together import MAX_ITEMS, Together, Wanted
from tests.support.fleet import BARE, GPU, node, north
from tests.support.threads import done, in_thread, until

LONG = 600.0


class Work:
    """Stores nothing, and only when it is told to."""

    def __init__(self, patience: float = LONG) -> None:
        self.groups: list[list[str]] = []
        self.go_on = threading.Event()
        self.desk: Together[str] = Together(self._work, patience)

    def _work(self, items: Sequence[str]) -> list[Verdict | Exception]:
        self.groups.append(list(items))
        assert self.go_on.wait(LONG)
        if "fatal" in items:
            raise Invalid("fatal")
        return [Invalid(item) if item == "bad" else Verdict(item, "updated") for item in items]

    def ask(self, *items: str) -> Any:
        return in_thread(lambda: self.desk.call(Wanted(items)))

    def busy(self) -> Any:
        """Somebody is at work."""
        first = self.ask("first")
        until(lambda: self.groups, "a thread at work")
        return first


def outcomes(found: Sequence[Verdict | Exception]) -> list[str]:
    return [item.outcome if isinstance(item, Verdict) else str(item) for item in found]


def test_what_arrives_while_a_thread_is_at_work_is_stored_by_one_that_waits() -> None:
    work = Work()
    first = work.busy()
    others = []
    for number, items in enumerate((["a"], ["b", "bad"], ["c"]), 1):
        others.append(work.ask(*items))
        until(lambda number=number: work.desk.waiting == number, "a request to wait")
    work.go_on.set()
    assert outcomes(done(first)) == ["updated"]
    assert [outcomes(done(item)) for item in others] == [
        ["updated"],
        ["updated", "bad"],
        ["updated"],
    ]
    assert work.groups == [["first"], ["a", "b", "bad", "c"]]


def test_a_group_is_bounded_and_one_that_fails_whole_fails_for_all_of_it() -> None:
    work = Work()
    work.busy()
    many = [str(number) for number in range(MAX_ITEMS)]
    waiting = []
    for number, items in enumerate((["fatal"], ["a"], many), 1):
        waiting.append(work.ask(*items))
        until(lambda number=number: work.desk.waiting == number, "a request to wait")
    work.go_on.set()
    assert [outcomes(done(item))[0] for item in waiting] == ["fatal", "fatal", "updated"]
    assert work.groups[1:] == [["fatal", "a"], many]


def test_others_go_on_where_a_thread_takes_long() -> None:
    work = Work(patience=0.0)
    work.busy()
    second = work.ask("second")
    until(lambda: len(work.groups) == 2, "another thread at work")
    work.go_on.set()
    assert outcomes(done(second)) == ["updated"]


def stale(_: Any) -> None:
    raise PreconditionFailed("it is another one")


@pytest.mark.django_db(transaction=True)
def test_a_node_is_made_changed_and_loses_a_document_in_one_transaction(no_jobs: None) -> None:
    north("a", "b", "c")
    found = ingest.store_requests(
        [
            together._expecting(Upload("new", "north", probes={"lshw": GPU}), create=True),
            together._expecting(Upload("a", "north"), create=True),
            together._expecting(Upload("a", hostname="rack1"), create=False),
            together._expecting(Upload("b", probes={"lshw": None}), create=False),
            together._expecting(Upload("nobody", hostname="x"), create=False),
            Upload("c", probes={"lshw": BARE}, expects=stale),
        ]
    )
    kinds = [type(getattr(item, "error", item)) for item in found]
    assert kinds == [
        type(None),
        AlreadyExists,
        type(None),
        type(None),
        NotFound,
        PreconditionFailed,
    ]
    assert node("new").rev == node("b").rev == 2
    assert (node("a").hostname, node("c").rev) == ("rack1", 1)


@pytest.mark.django_db(transaction=True)
def test_nodes_are_deleted_in_one_transaction_each_as_it_was_asked(no_jobs: None) -> None:
    north("a", "b", "c")
    found = ingest.delete_requests(
        [Deletion("a"), Deletion("b", stale), Deletion("nobody"), Deletion("c"), Deletion("a")]
    )
    kinds = [getattr(getattr(item, "error", item), "code", "deleted") for item in found]
    assert kinds == ["deleted", "precondition_failed", "not_found", "deleted", "not_found"]
    revs = dict(Node.objects.values_list("system_id", "rev"))
    assert revs == {"a": 2, "b": 1, "c": 2}


@pytest.mark.django_db(transaction=True)
def test_who_asks_is_told_what_was_wrong(no_jobs: None) -> None:
    north("a")
    with pytest.raises(AlreadyExists):
        together.store(Upload("a", "north"), create=True)
    assert together.store(Upload("a", hostname="rack1"), create=False).outcome == "updated"
    with pytest.raises(PreconditionFailed):
        together.delete("a", stale)
    together.delete("a")
    with pytest.raises(NotFound):
        together.delete("a")
    with pytest.raises(NotFound):
        together.store(Upload("a", hostname="rack2"), create=False)
