"""Changes settle where they happen: what is written, what is left to workers, who comes between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tagmill import locks
from tagmill.fleet import clusters
from tagmill.fleet.documents import Upload
from tagmill.fleet.models import Partition
from tagmill.fleet.partitions import reserve
from tagmill.flows import ingest
from tagmill.locks import Lock
from tagmill.matches import staleness, verdicts
from tagmill.matches.models import Match, MatchChange
from tagmill.tags import rebuilds, tags
from tagmill.work import leases
from tagmill.work.models import Worker
from tests.support.fleet import BARE, GPU, HAS_GPU, carriers, put, tag, the_partition
from tests.support.workers import a_worker, complete, evaluated, jobs, work

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(
        not verdicts.HAS_KERNEL, reason="a server without the kernel settles nothing"
    ),
]

LLDP = b"<lldp><name>switch1</name></lldp>"
AT_SWITCH = "//*[local-name()='name'][.='switch1']"
# The kernel leaves it to lxml.
REFUSED = "count(//namespace::*) > 0"
# It takes the kernel some hundred steps, and more in larger documents.
LONG = "//*[count(ancestor::*[position()=1]/descendant::*[position()=3]) = 7]"


@pytest.fixture
def worker(db: None, configure: Callable[..., None]) -> Worker:
    """Three nodes in one partition, evaluated, with tags of all and of GPUs."""
    configure(settle_seconds=5)
    clusters.create("north")
    for name, definition in {"gpu": HAS_GPU, "all": "true()"}.items():
        tags.create(name, definition=definition)
    put("a", "b", "c", xml=BARE)
    return a_worker()


def settled(name: str, xml: bytes | None, probe: str = "lshw") -> bool | None:
    (verdict,) = ingest.store([Upload(name, probes={probe: xml})])
    assert verdict.error is None
    return verdict.settled


def rows() -> dict[str, tuple[int | None, str]]:
    """Each match's own rev, and the transaction that wrote it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT e.text, m.rev, m.xmin::text || m.ctid::text"
            " FROM match m JOIN expression e ON e.id = m.expression_id"
        )
        return {text: (rev, version) for text, rev, version in cursor.fetchall()}


def is_fresh() -> bool:
    return not staleness.stale([the_partition().id])


# -- what is written -------------------------------------------------------------------------------


def test_the_first_nodes_of_a_partition_are_settled_without_a_worker(worker: Worker) -> None:
    assert carriers("all") == {"a", "b", "c"} and carriers("gpu") == set()
    assert is_fresh() and not jobs("todo")
    assert [rev for rev, _ in rows().values()] == [None, None]


def test_the_first_node_of_a_partition_publishes_what_waited_for_it_alone(
    worker: Worker, django_capture_on_commit_callbacks: Any
) -> None:
    """An upload made the partition, and was refused under the lock."""
    south = clusters.create("south")
    reserve(south.id, 1)
    tags.create("late", definition=AT_SWITCH)
    (answer,) = (leases.grant(worker, 1, []).answer,)
    complete(worker, *(evaluated(answer, lease) for lease in answer.leases))
    assert tag("late").pending_expression is not None
    with django_capture_on_commit_callbacks(execute=True):
        ingest.store([Upload("d", "south", probes={"lldp": LLDP})])
    assert carriers("late") == {"d"}
    assert tag("late").pending_expression is None


def test_a_change_that_flips_nothing_writes_no_match(worker: Worker) -> None:
    before, changes = rows(), MatchChange.objects.count()
    assert settled("a", BARE.replace(b"core", b"board"))
    assert rows() == before and MatchChange.objects.count() == changes
    assert is_fresh() and not jobs("todo")


def test_a_change_writes_the_matches_that_it_flips_alone(worker: Worker) -> None:
    before = rows()
    assert settled("a", GPU)
    assert carriers("gpu") == {"a"}
    after = rows()
    assert {text for text in after if after[text] != before[text]} == {HAS_GPU}
    change = MatchChange.objects.latest("id")
    partition = the_partition()
    assert (change.from_rev, change.to_rev) == (partition.rev - 1, partition.rev)
    assert settled("a", BARE) and carriers("gpu") == set()


def test_a_node_that_is_deleted_described_or_moved_is_settled(worker: Worker) -> None:
    assert settled("a", GPU)
    assert ingest.store([Upload("a", hostname="rack1")])[0].settled
    assert carriers("gpu") == {"a"} and is_fresh()
    clusters.create("south")
    (verdict,) = ingest.store([Upload("a", cluster="south")])
    assert verdict.settled and carriers("gpu") == {"a"}
    assert ingest.delete("a") and carriers("gpu") == set() and carriers("all") == {"b", "c"}
    assert not jobs("todo")


def test_probes_that_were_stored_before_belong_to_the_document(worker: Worker) -> None:
    tags.create("switch", definition=AT_SWITCH)
    work(worker)
    assert settled("a", LLDP, "lldp") and carriers("switch") == {"a"}
    assert settled("a", GPU) and carriers("switch") == {"a"} and carriers("gpu") == {"a"}
    assert settled("a", None) and carriers("gpu") == set() and carriers("switch") == {"a"}
    assert (
        settled("a", None, "lldp") and carriers("switch") == carriers("all") - {"b", "c"} == set()
    )


def test_many_nodes_at_once_are_settled_as_one_is(worker: Worker) -> None:
    names = [f"n{number}" for number in range(40)]
    uploads = [
        Upload(name, probes={"lshw": GPU if number % 3 else BARE})
        for number, name in enumerate(names)
    ]
    assert all(verdict.settled for verdict in ingest.store(uploads))
    assert carriers("gpu") == {name for number, name in enumerate(names) if number % 3}
    flipped = [Upload(item.system_id, probes={"lshw": BARE}) for item in uploads]
    assert {verdict.settled for verdict in ingest.store(flipped)} == {True, None}
    assert carriers("gpu") == set() and len(carriers("all")) == 43


# -- what is left to workers -----------------------------------------------------------------------


@pytest.mark.parametrize("definition", [REFUSED, LONG])
def test_what_is_not_answered_here_waits_for_a_worker_and_nothing_else_does(
    worker: Worker, configure: Callable[..., None], definition: str
) -> None:
    tags.create("other", definition=definition)
    work(worker)
    configure(settle_seconds=0.000001)
    large = b"<list>" + b"<node/>" * 20 + b"<node class='display'/></list>"
    for number in range(3):
        assert settled("a", large + b"<!--%d-->" % number) is False
        assert carriers("gpu") == {"a"}
        (stale,) = staleness.stale([the_partition().id])
        assert stale.base_rev == the_partition().rev - 1
        before = rows()
        assert work(worker) == 1 and is_fresh()
        assert {text for text, row in rows().items() if row != before[text]} == {definition}


def test_a_partition_that_is_behind_is_left_to_workers(
    worker: Worker, configure: Callable[..., None]
) -> None:
    configure(settle_seconds=0)
    assert settled("a", GPU) is False and carriers("gpu") == set()
    configure(settle_seconds=5)
    assert settled("b", GPU) is False and not is_fresh()
    assert carriers("gpu") == {"b"}, "what is known of a changed node is shown"
    assert work(worker) == 2 and carriers("gpu") == {"a", "b"}
    assert settled("c", GPU) and carriers("gpu") == {"a", "b", "c"}


def test_a_forced_rebuild_is_not_settled_by_a_change(worker: Worker) -> None:
    rebuild = rebuilds.request(["gpu"], None)
    assert settled("a", GPU) is False and not is_fresh()
    assert carriers("gpu") == {"a"}, "readers keep the old set, but for the node that changed"
    assert staleness.stale([the_partition().id])[0].base_rev is None
    assert work(worker) == 1 and carriers("gpu") == {"a"} and is_fresh()
    rebuild.refresh_from_db()
    assert rebuild.state == "complete"
    assert settled("a", BARE), "and its match is settled again"


def test_a_cancelled_rebuild_leaves_its_match_to_be_settled(worker: Worker) -> None:
    rebuilds.cancel(rebuilds.request(["gpu"], None).uuid)
    assert is_fresh()
    assert settled("a", GPU) and carriers("gpu") == {"a"}
    assert [rev for rev, _ in rows().values()] == [None, None]


# -- who comes between -----------------------------------------------------------------------------


def before_the_lock(act: Callable[[], object]) -> Callable[[Lock], None]:
    """Run once, between an upload's evaluation and its lock of the partition."""

    def watcher(kind: Lock) -> None:
        if kind == Lock.PARTITION and watcher in locks.watchers:
            locks.watchers.remove(watcher)
            act()

    locks.watchers.append(watcher)
    return watcher


def asked_anew() -> None:
    """As in a server's first change: what is live is asked for before the evaluation."""
    remembered = verdicts.last()
    if remembered is not None:
        verdicts.forget(remembered)


def test_what_is_live_is_asked_for_once_and_compared_under_the_lock(worker: Worker) -> None:
    assert settled("a", GPU)
    tags.create("bare", definition="not(//node[@class='display'])")
    work(worker)
    # Evaluated for two tags, and then for three.
    with CaptureQueriesContext(connection) as superseded:
        assert settled("b", GPU)
    with CaptureQueriesContext(connection) as known:
        assert settled("c", GPU)
    assert carriers("bare") == set() and is_fresh()
    asking = [item["sql"] for item in known if item["sql"].startswith("SELECT version FROM")]
    assert not asking and len(known) < len(superseded)


@pytest.mark.parametrize("first", ["refused", "nothing"])
def test_a_change_without_verdicts_learns_what_is_live(worker: Worker, first: str) -> None:
    """Nothing was live, or nothing that the kernel takes, when it was asked for."""
    for name in ("gpu", "all"):
        tags.delete(name)
    if first == "refused":
        tags.create("names", definition=REFUSED)
    asked_anew()
    assert settled("a", GPU) is (first == "nothing")
    work(worker)
    if first == "refused":
        tags.update("names", definition=HAS_GPU)
    else:
        tags.create("gpu", definition=HAS_GPU)
    work(worker)
    assert settled("a", BARE) and is_fresh()


def test_the_first_node_of_a_partition_is_evaluated_for_what_is_live(worker: Worker) -> None:
    assert settled("a", GPU)
    tags.create("bare", definition="not(//node[@class='display'])")
    work(worker)
    clusters.create("south")
    (verdict,) = ingest.store([Upload("d", "south", probes={"lshw": BARE})])
    assert verdict.settled and "d" in carriers("bare")


def test_a_tag_that_was_made_meanwhile_waits_for_its_worker(worker: Worker) -> None:
    asked_anew()
    before_the_lock(lambda: tags.create("bare", definition="not(//node[@class='display'])"))
    assert settled("a", GPU) is False
    assert carriers("gpu") == {"a"}
    work(worker)
    assert carriers("bare") == {"b", "c"}


def test_a_tag_that_came_back_meanwhile_is_evaluated(worker: Worker) -> None:
    """Its match was settled all the time, and has no verdict: it is not true at the new rev."""
    tags.delete("gpu")
    asked_anew()
    before_the_lock(lambda: tags.create("gpu", definition=HAS_GPU))
    assert settled("a", GPU) is False
    assert work(worker) == 1 and carriers("gpu") == {"a"}


def test_a_document_that_was_stored_meanwhile_is_not_settled_by_what_was_there_before(
    worker: Worker,
) -> None:
    tags.create("switch", definition=AT_SWITCH)
    work(worker)
    assert settled("a", LLDP, "lldp")
    before_the_lock(lambda: settled("a", b"<lldp><name>s2</name></lldp>", "lldp"))
    assert settled("a", GPU) is False
    work(worker)
    assert carriers("switch") == set() and carriers("gpu") == {"a"}


def test_a_late_result_of_before_the_change_replaces_nothing(worker: Worker) -> None:
    rebuilds.request(None, None)
    answer = leases.grant(worker, 1, []).answer
    late = evaluated(answer, answer.leases[0])
    ingest.store([Upload("a", probes={"lshw": GPU})])
    complete(worker, late)
    assert not is_fresh()
    work(worker)
    assert carriers("gpu") == {"a"} and is_fresh()


# -- what it costs ---------------------------------------------------------------------------------


def test_a_change_costs_the_same_statements_however_many_tags_there_are(worker: Worker) -> None:
    def statements() -> int:
        for xml in (GPU, BARE):
            with CaptureQueriesContext(connection) as captured:
                assert settled("a", xml)
        # The dictionaries of today are asked for once in some seconds, wherever these end.
        said = [str(query["sql"]) for query in captured.captured_queries]
        return sum("FROM document_dictionary" not in text for text in said)

    few = statements()
    for number in range(30):
        tags.create(f"t{number}", definition=f"//node[@id='{number}']")
    work(worker)
    assert statements() == few
    assert Match.objects.count() == 32 and Partition.objects.count() == 1


def test_between_two_groups_of_documents_the_time_may_be_over(
    worker: Worker, configure: Callable[..., None]
) -> None:
    """Each document takes few steps, which a group is given whatever the time; many take time."""
    live = verdicts.current()
    documents = [{"lshw": BARE.decode()}] * (verdicts.GROUP + 1)
    configure(settle_seconds=0.000001)
    assert set(verdicts.evaluate(documents[1:], live).ids) == set(live.plans)
    assert not verdicts.evaluate(documents, live).ids


def test_where_many_take_too_long_as_others_did_they_are_not_begun_with(
    worker: Worker, configure: Callable[..., None]
) -> None:
    """Neither evaluated nor read; now and then it is tried again."""
    live, count = verdicts.current(), verdicts.GROUP + 1
    documents = [{"lshw": BARE.decode()}] * count
    configure(settle_seconds=0.000001)
    assert verdicts.fits(count, live)
    verdicts.evaluate(documents, live)
    tried = [verdicts.fits(count, live) for _ in range(verdicts.MAX_SKIPPED + 1)]
    assert tried == [False] * verdicts.MAX_SKIPPED + [True]
    verdicts.evaluate(documents, live)
    assert not verdicts.fits(count, live) and verdicts.fits(verdicts.GROUP, live)
    configure(settle_seconds=5)
    assert verdicts.fits(count, live)
    names = [f"m{number}" for number in range(count)]
    put(*names, cluster="north")
    configure(settle_seconds=0.000001)
    assert verdicts.fits(1, live) and not verdicts.fits(count, live)
    uploads = [Upload(name, probes={"lldp": BARE}) for name in names]
    said: list[str] = []

    def note(execute: Any, statement: str, *rest: Any) -> Any:
        said.append(statement)
        return execute(statement, *rest)

    with connection.execute_wrapper(note):
        found = ingest.store(uploads)
    assert {item.settled for item in found} == {False}
    assert said and not any("max_bytes" in statement for statement in said)
    work(worker)
    assert is_fresh()
