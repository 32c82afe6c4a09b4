"""Uploads that arrive together go together, and each gets its own answer."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

from api.etags import Condition
from api.server.documents import Put, put_all
from api.server.grouping import Bounds, Grouping
from api.server.threads import with_connection
from loadtest.rig.stack import Stack
from tagmill.errors import DatabaseBusy, Invalid, NotFound, TagmillError
from tagmill.fleet import clusters
from tagmill.fleet.documents import Verdict
from tagmill.fleet.models import Document
from tagmill.matches import verdicts
from tagmill.tags import tags
from tests.server.test_serve import call, token_of
from tests.support.fleet import ANY, BARE, GPU, HAS_GPU, carriers, put
from tests.support.servers import server
from tests.support.sql import database_url, execute
from tests.support.threads import blocked, done, in_thread, until, until_blocked

XML = "application/xml"
BOUNDS = Bounds(group=3, group_bytes=100, waiting=5, waiting_bytes=150, seconds=20.0, patience=1.0)


# -- who goes together -----------------------------------------------------------------------------


class Hands:
    """What a Grouping needs of threads. Nothing ends before it is told to."""

    def __init__(self, most: int = 2) -> None:
        self.most = most
        self.groups: list[list[str]] = []
        self._running: list[tuple[Callable[..., Any], list[str], Deferred[Any]]] = []

    def call(self, function: Callable[..., Any], items: list[str]) -> Deferred[Any]:
        running: Deferred[Any] = Deferred()
        self.groups.append(items)
        self._running.append((function, items, running))
        return running

    def end(self) -> None:
        """What has begun first."""
        function, items, running = self._running.pop(0)
        try:
            results = function(items)
        except Exception as error:
            running.errback(error)
        else:
            running.callback(results)


class Desk:
    def __init__(self, bounds: Bounds = BOUNDS, most: int = 2) -> None:
        self.clock, self.hands = Clock(), Hands(most)
        self._grouping: Grouping[str, str] = Grouping(self.clock, self.hands, self._work, bounds)

    def _work(self, items: Sequence[str]) -> list[str | BaseException]:
        if "fatal" in items:
            raise NotFound("fatal")
        return [Invalid(item) if item == "bad" else item.upper() for item in items]

    def ask(self, item: str, size: int = 1) -> Deferred[str]:
        answer = self._grouping.call(item, size)
        answer.addErrback(
            lambda failure: (
                f"{failure.value.code}: {failure.value}"
                if failure.check(TagmillError)
                else failure.trap(CancelledError)
            )
        )
        return answer

    @property
    def waiting(self) -> int:
        return self._grouping.waiting


def test_the_first_goes_at_once_and_those_that_arrive_meanwhile_go_together() -> None:
    desk = Desk()
    answers = [desk.ask(item) for item in ("a", "b", "bad", "c", "d")]
    assert desk.hands.groups == [["a"]]
    desk.hands.end()
    assert desk.hands.groups == [["a"], ["b", "bad", "c"]] and answers[0].result == "A"
    desk.hands.end()
    assert [answer.result for answer in answers[1:4]] == ["B", "invalid: bad", "C"]
    assert desk.hands.groups[2:] == [["d"]]


def test_the_more_threads_wait_the_longer_others_wait_for_a_larger_group() -> None:
    desk = Desk(most=4)
    for item in ("a", "b"):
        desk.ask(item)
    desk.clock.advance(BOUNDS.patience)
    assert desk.hands.groups == [["a"], ["b"]]
    desk.ask("c")
    desk.clock.advance(BOUNDS.patience)
    desk.ask("d")
    assert len(desk.hands.groups) == 2
    desk.clock.advance(BOUNDS.patience)
    assert desk.hands.groups[2:] == [["c", "d"]]


def test_a_group_that_fails_whole_fails_for_all_and_the_next_goes_on() -> None:
    desk = Desk()
    desk.ask("a")
    answers = [desk.ask(item) for item in ("b", "fatal", "c", "d")]
    desk.hands.end()
    desk.hands.end()
    assert {answer.result for answer in answers[:3]} == {"not_found: fatal"}
    desk.hands.end()
    assert answers[3].result == "D"


def test_a_group_is_bounded_in_bytes_and_one_that_is_larger_goes_alone() -> None:
    desk = Desk()
    desk.ask("a")
    for item, size in (("b", 60), ("c", 60)):
        desk.ask(item, size)
    desk.hands.end()
    desk.hands.end()
    assert desk.hands.groups == [["a"], ["b"], ["c"]]
    desk.ask("d", 1000)
    desk.hands.end()
    assert desk.hands.groups[3] == ["d"]


def test_another_thread_goes_on_where_one_takes_long() -> None:
    desk = Desk()
    desk.ask("a")
    desk.ask("b")
    desk.clock.advance(0.9)
    assert desk.hands.groups == [["a"]]
    desk.clock.advance(0.2)
    assert desk.hands.groups == [["a"], ["b"]]
    desk.ask("c")
    desk.clock.advance(5)
    assert len(desk.hands.groups) == 2
    desk.hands.end()
    assert desk.hands.groups[2] == ["c"]


def test_clients_that_were_answered_together_go_together_again() -> None:
    desk = Desk(replace(BOUNDS, linger=0.2, enough=3))
    for item in ("a", "b", "c"):
        desk.ask(item)
    desk.clock.advance(0.1)
    desk.hands.end()
    assert desk.hands.groups == [["a"], ["b", "c"]]
    desk.clock.advance(0.1)
    desk.ask("d")
    desk.hands.end()
    # "d" waited when the two were answered, and is one of three that are here.
    desk.ask("e")
    assert len(desk.hands.groups) == 2
    desk.ask("f")
    assert desk.hands.groups[2] == ["d", "e", "f"]


def test_where_enough_wait_they_go_without_the_others() -> None:
    desk = Desk(replace(BOUNDS, linger=0.2, enough=2))
    for item in ("a", "b", "c", "d"):
        desk.ask(item)
    desk.clock.advance(0.1)
    desk.hands.end()
    assert desk.hands.groups[1] == ["b", "c", "d"]
    desk.ask("e")
    desk.clock.advance(0.1)
    desk.hands.end()
    # Three were answered, and two are here.
    assert len(desk.hands.groups) == 2
    desk.ask("f")
    assert desk.hands.groups[2] == ["e", "f"]


def test_nobody_waits_long_for_those_who_do_not_come_again() -> None:
    desk = Desk(replace(BOUNDS, linger=0.2, enough=3))
    for item in ("a", "b", "c"):
        desk.ask(item)
    desk.hands.end()
    desk.clock.advance(0.3)
    desk.hands.end()
    # The last group took longer than anybody lingers.
    desk.ask("d")
    desk.clock.advance(0.19)
    assert len(desk.hands.groups) == 2
    desk.clock.advance(0.02)
    assert desk.hands.groups[2] == ["d"]
    desk.hands.end()
    desk.ask("e")
    assert desk.hands.groups[3] == ["e"], "alone, it waits for nobody"
    desk.ask("f")
    desk.ask("g")
    desk.clock.advance(0.1)
    desk.hands.end()
    desk.hands.end()
    desk.ask("h")
    assert len(desk.hands.groups) == 6, "no longer than the last group took, which is no time"


def test_what_waits_is_bounded_in_number_in_bytes_and_in_time() -> None:
    desk = Desk()
    for item in ("a", "b"):
        desk.ask(item)
        desk.clock.advance(1)
    waiting = [desk.ask(str(number)) for number in range(5)]
    assert desk.ask("6").result.startswith(DatabaseBusy.code)
    desk.clock.advance(20)
    assert all(answer.result.startswith(DatabaseBusy.code) for answer in waiting)
    assert desk.waiting == 0
    large = [desk.ask("x", 100), desk.ask("y", 51)]
    assert not large[0].called and large[1].result.startswith(DatabaseBusy.code)


def test_who_leaves_takes_an_item_back_until_it_begins() -> None:
    desk = Desk()
    running, gone, last = desk.ask("a"), desk.ask("b"), desk.ask("c")
    gone.cancel()
    running.cancel()
    desk.hands.end()
    assert desk.hands.groups == [["a"], ["c"]]
    desk.hands.end()
    desk.clock.advance(BOUNDS.patience)
    assert last.result == "C" and not desk.clock.getDelayedCalls()


# -- what each is answered -------------------------------------------------------------------------


class Clients:
    """Each uploads on a connection of its own, one after the other has arrived."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._tokens = {role: token_of(role) for role in ("uploader", "viewer")}
        self.running: list[Future[Any]] = []
        self._queued = 0

    def put(
        self, node: str, body: bytes, role: str = "uploader", probe: str = "lshw", **headers: str
    ) -> Future[Any]:
        given = {"Content_Type": XML, "Authorization": self._tokens.get(role, role), **headers}
        place = f"/api/v1/nodes/{node}/document?probe={probe}"

        def send() -> tuple[int, dict[str, Any], Any]:
            response, data = call(self._stack, "PUT", place, body, **given)
            return response.status, json.loads(data), response.headers

        self.running.append(in_thread(send))
        return self.running[-1]

    def queue(self, *given: Any, **headers: str) -> Future[Any]:
        """As `put`, and wait until it waits."""
        found = self.put(*given, **headers)
        self._queued += 1
        until(lambda: self.waiting() == self._queued, "an upload to wait")
        return found

    def waiting(self) -> int:
        _, data = call(self._stack, "GET", "/metrics")
        lines = data.decode().splitlines()
        (value,) = (
            line.split()[1] for line in lines if line.startswith("tagmill_waiting_uploads ")
        )
        return int(float(value))


@contextmanager
def all_threads_wait(clients: Clients) -> Iterator[psycopg.Connection[Any]]:
    """Uploads of the nodes `0`, `1`, ... keep every thread, until the partitions are unlocked; they
    are answered at the end."""
    answers = []
    with psycopg.connect(database_url()) as holder:
        holder.execute("SELECT FROM partition FOR UPDATE")
        for number in range(4):
            answers.append(clients.put(str(number), BARE))
            until_blocked(number + 1)
        yield holder
    for answer in answers:
        done(answer)


@pytest.fixture(scope="module")
def shared_stack(
    django_db_setup: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """Its uploads settle themselves. What waits for a lock here waits until the test gives it back,
    however long the test takes until then: were it given up, those that wait behind it would begin
    before all of them are there."""
    settings = {"TAGMILL_SETTLE_SECONDS": "5", "TAGMILL_LOCK_SECONDS": "600"}
    yield from server(
        tmp_path_factory.mktemp("server"), **settings, TAGMILL_STATEMENT_SECONDS="600"
    )


@pytest.fixture
def fleet(transactional_db: None, configure: Callable[..., None]) -> None:
    configure(settle_seconds=5)
    clusters.create("north")
    tags.create("all", definition=ANY)
    tags.create("gpu", definition=HAS_GPU)
    put(*"0123abcdef")


@pytest.fixture
def clients(stack: Stack, fleet: None) -> Clients:
    return Clients(stack)


def document(node: str, probe: str = "lshw") -> str:
    found: str = Document.objects.get(node__system_id=node, probe=probe).xml
    return found


def test_each_upload_of_a_group_has_its_own_outcome(clients: Clients) -> None:
    with all_threads_wait(clients):
        good = [clients.queue(node, BARE) for node in "ab"]
        same = clients.queue("f", GPU)
        refused = {
            "invalid_document": clients.queue("c", b"<list>\n</node>"),
            "unauthorized": clients.queue("c", BARE, "Token wrong"),
            "forbidden": clients.queue("c", BARE, "viewer"),
            "precondition_failed": clients.queue("c", BARE, If_Match='"0123"'),
            "not_found": clients.queue("nobody", BARE),
            "unsupported_media_type": clients.queue("c", BARE, Content_Encoding="br"),
        }
    first, second = map(done, good)
    assert [first[0], second[0]] == [200, 200]
    assert first[1]["rev"] == second[1]["rev"]
    assert first[1]["settled"] == second[1]["settled"] == verdicts.HAS_KERNEL
    assert len({answer[2]["X-Request-Id"] for answer in (first, second)}) == 2
    assert done(same)[1]["outcome"] == "unchanged"
    for code, answer in refused.items():
        status, problem, _ = done(answer)
        assert (problem["status"], problem["code"]) == (status, code)
    assert document("c") == GPU.decode() and document("a") == BARE.decode()
    if verdicts.HAS_KERNEL:
        assert carriers("gpu") == set("cdef")


def test_two_uploads_to_one_node_are_stored_in_their_order(clients: Clients) -> None:
    with all_threads_wait(clients):
        first, second = clients.queue("a", b"<one/>"), clients.queue("a", b"<two/>")
        others = [clients.queue("b", b"<b/>"), clients.queue("b", b"<c/>", If_None_Match="*")]
    assert done(first)[1]["rev"] < done(second)[1]["rev"]
    assert document("a") == "<two/>"
    assert [done(answer)[0] for answer in others] == [200, 412] and document("b") == "<b/>"


def test_two_probes_of_one_node_are_both_stored(clients: Clients) -> None:
    with all_threads_wait(clients):
        answers = [clients.queue("a", BARE), clients.queue("a", b"<x/>", "uploader", "lldp")]
    assert [done(answer)[0] for answer in answers] == [200, 200]
    assert (document("a"), document("a", "lldp")) == (BARE.decode(), "<x/>")


def test_what_the_database_refuses_of_one_is_stored_of_the_others(clients: Clients) -> None:
    execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE 'no'; END $$;"
        "CREATE TRIGGER refuse BEFORE INSERT ON document FOR EACH ROW "
        "WHEN (new.xml = '<poison/>') EXECUTE FUNCTION refuse()"
    )
    try:
        with all_threads_wait(clients):
            bodies = (b"<a/>", b"<poison/>", b"<c/>")
            answers = [clients.queue(node, body) for node, body in zip("abc", bodies, strict=True)]
        assert [done(answer)[0] for answer in answers] == [200, 500, 200]
    finally:
        execute("DROP TRIGGER refuse ON document; DROP FUNCTION refuse()")
    assert [document(node) for node in "abc"] == ["<a/>", GPU.decode(), "<c/>"]


def test_a_group_whose_connection_breaks_is_told_to_come_again(clients: Clients) -> None:
    with all_threads_wait(clients) as holder:
        answers = [clients.queue(node, BARE) for node in "abc"]
        pids = blocked()
        execute("SELECT pg_terminate_backend(%s)", pids[:1])
        # Its thread takes what waits, and waits for the lock again.
        until(lambda: not clients.waiting() and len(blocked()) == len(pids), "the next group")
        for pid in blocked():
            execute("SELECT pg_terminate_backend(%s)", [pid])
        for answer in (*answers, *clients.running[:4]):
            status, problem, headers = done(answer)
            assert (status, problem["code"]) == (503, "database_unavailable")
            assert headers["Retry-After"]
        holder.rollback()
        again = [clients.put(node, BARE) for node in "abc"]
        assert [done(answer)[0] for answer in again] == [200, 200, 200]


def test_what_waits_is_stored_before_the_server_stops(own_stack: Stack, fleet: None) -> None:
    clients = Clients(own_stack)
    with all_threads_wait(clients):
        answers = [clients.queue(node, BARE) for node in "abc"]
        own_stack.signal_server(signal.SIGTERM)
    assert {done(answer)[0] for answer in (*answers, *clients.running)} == {200}


# -- what it costs ---------------------------------------------------------------------------------


def statements(token: str, nodes: str, body: bytes) -> list[str]:
    asked = [
        Put(
            credentials=(token, ""),
            form=None,
            refuse=lambda: None,
            system_id=node,
            probe="lshw",
            cluster=None,
            condition=Condition(None, None),
            content_type=XML,
            body=body,
            coding=None,
            request_id="0",
        )
        for node in nodes
    ]
    with CaptureQueriesContext(connection) as seen:
        found = put_all(asked)
    assert all(isinstance(item, Verdict) and item.outcome == "updated" for item in found), found
    # The dictionaries of today are asked for once in some seconds, wherever these end.
    said = [query["sql"] for query in seen.captured_queries]
    return [text for text in said if "FROM document_dictionary" not in str(text)]


@pytest.mark.skipif(not verdicts.HAS_KERNEL, reason="others leave it to the workers' queue")
def test_eight_uploads_take_as_many_statements_as_one(fleet: None) -> None:
    token = token_of("uploader")
    eight = "0123abcd"
    # The token's use is recorded, and what is live is read, as are the dictionaries of documents.
    statements(token, eight, BARE)
    one = statements(token, "a", BARE.replace(b"core", b"other"))
    # The token; nodes; BEGIN; the lock; nodes, documents; matches; the rev; COMMIT.
    assert len(one) == 9, one
    assert len(statements(token, eight, BARE.replace(b"core", b"board"))) == len(one)
    # Three more: matches that flip are locked and written, and their trail.
    assert len(statements(token, eight, GPU)) == len(one) + 3


def backend() -> tuple[bool, int]:
    """Whether the connection is trusted, and whose it is."""
    is_trusted = connection.health_check_done
    return is_trusted, execute("SELECT pg_backend_pid()")[0][0]


def test_a_quiet_connection_is_not_asked_and_one_that_was_ended_is_replaced(
    transactional_db: None,
) -> None:
    def use() -> list[tuple[bool, int]]:
        found = [with_connection(backend), with_connection(backend)]
        with psycopg.connect(database_url(), autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 10000)", [found[0][1]])
        return [*found, with_connection(backend)]

    _, (is_trusted, pid), (is_trusted_then, pid_then) = done(in_thread(use))
    assert (is_trusted, is_trusted_then) == (True, False)
    assert pid != pid_then
