"""The worker protocol and the events of a rebuild, as the server itself answers them."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db.models.functions import Now

from fixtures.generate import generate
from loadtest.rig.stack import Stack, running
from tagmill.fleet import clusters, dictionaries, incarnation, packing
from tagmill.fleet.models import Cluster, Partition
from tagmill.matches import staleness
from tagmill.tags import rebuilds
from tagmill.work import workers
from tagmill.work.models import Lease, WorkerToken
from tagmill_wire import frames, zstd
from tagmill_wire.messages import VERSION, Batch, ExpressionSet, load
from tagmill_wire.pagehead import PageHead
from tagmill_worker import pages
from tests.fleet.test_incarnation import ELSEWHERE
from tests.server.test_serve import LEASE, call, registered, token_of, worker
from tests.support.fleet import HAS_GPU, carriers, put
from tests.support.sql import execute
from tests.support.threads import until
from tests.support.workers import a_worker, work


@pytest.fixture
def fleet(stack: Stack, no_jobs: None) -> Stack:
    """A node in each of two clusters, and a tag to evaluate on both."""
    for name, node in (("north", "a"), ("south", "b")):
        clusters.create(name)
        put(node, cluster=name)
    body = json.dumps({"name": "gpu", "definition": HAS_GPU})
    made, data = call(
        stack,
        "POST",
        "/api/v1/tags/",
        body,
        Authorization=token_of("operator"),
        Content_Type="application/json",
    )
    assert made.status == 201, data
    return stack


def partition(cluster: str) -> int:
    return Partition.objects.get(cluster__name=cluster).id


def of_cluster(stack: Stack, name: str) -> tuple[str, str]:
    """(Authorization, uuid) of a worker of this cluster."""
    _, token = workers.issue_token(f"for {name}", [Cluster.objects.get(name=name)])
    return registered(stack, token)


def leased(stack: Stack, header: str, uuid: str) -> Any:
    body = json.dumps({"worker": uuid, "max_partitions": 8})
    response, data = call(stack, "POST", LEASE, body, Authorization=header)
    assert response.status == 200, data
    return [lease["partition"] for lease in json.loads(data)["leases"]]


def nodes(stack: Stack, header: str, cluster: str, query: str = "") -> tuple[int, Any]:
    named = f"incarnation={incarnation.current()}"
    path = f"/api/v1/partitions/{partition(cluster)}/nodes?{named}&{query}"
    response, data = call(stack, "GET", path, Authorization=header)
    return response.status, json.loads(data)


def test_a_token_leases_and_reads_partitions_of_its_clusters_alone(fleet: Stack) -> None:
    header, uuid = of_cluster(fleet, "north")
    assert leased(fleet, header, uuid) == [partition("north")]
    assert leased(fleet, header, uuid) == []
    status, batch = nodes(fleet, header, "north")
    assert (status, len(batch["nodes"])) == (200, 1)
    # Also when it is in the server's cache.
    everywhere, _ = worker(fleet)
    assert nodes(fleet, everywhere, "south")[0] == 200
    status, problem = nodes(fleet, header, "south")
    assert (status, problem["code"]) == (404, "not_found")


def test_the_headers_of_a_page_say_what_its_body_says(fleet: Stack) -> None:
    """Also of one from the server's cache: the second time."""
    header, _ = worker(fleet)
    path = f"/api/v1/partitions/{partition('north')}/nodes?incarnation={incarnation.current()}"
    put("c", cluster="north")
    for query in ("&max_nodes=1", "&max_nodes=1", "", "&after=9"):
        response, data = call(fleet, "GET", path + query, Authorization=header)
        batch = load(Batch, data)
        assert PageHead.read(response.headers.get) == PageHead.of(batch)
    assert PageHead.of(batch).is_empty


def test_a_page_goes_out_as_it_is_stored_to_who_takes_it(fleet: Stack) -> None:
    """And as JSON to everybody else; each has its own entity tag."""
    for number, item in enumerate(generate(dictionaries.MIN_DOCUMENTS, 1)):
        put(f"n{number}", cluster="north", xml=item.probes["lshw"].encode())
    packing.run_all()
    header, _ = worker(fleet)
    path = f"/api/v1/partitions/{partition('north')}/nodes?incarnation={incarnation.current()}"
    found = []
    for accept in ("application/json", f"{frames.MEDIA_TYPE}, application/json"):
        asked = {"Authorization": header, "Accept": accept, "Accept_Encoding": "zstd"}
        response, data = call(fleet, "GET", path, **asked)
        again, cached = call(fleet, "GET", path, **asked)
        assert cached == data and again.headers["Content-Type"] == response.headers["Content-Type"]
        page = pages.read(PageHead.read(response.headers.get), 1, data, is_zstd=True)
        headers = response.headers
        found.append((pages.entries(page.data), headers["Content-Type"], headers["ETag"]))
        assert "Accept," in headers["Vary"]
        asked["If_None_Match"] = headers["ETag"]
        assert call(fleet, "GET", path, **asked)[0].status == 304
    (plain, first, one), (packed, second, two) = found
    assert plain == packed and len(plain) == dictionaries.MIN_DOCUMENTS + 1
    assert (first, second) == ("application/json", frames.MEDIA_TYPE) and one != two

    # Without the dictionary, which is fetched once.
    accept = f"{frames.NAMED_TYPE}, {frames.MEDIA_TYPE}, application/json"
    asked = {"Authorization": header, "Accept": accept, "Accept_Encoding": "zstd"}
    response, data = call(fleet, "GET", path, **asked)
    (key,) = frames.named(response.headers[frames.DICTIONARIES])
    assert response.headers["Content-Type"] == frames.MEDIA_TYPE
    assert response.headers["ETag"] not in (one, two)
    place = f"/api/v1/partitions/{partition('north')}/dictionaries/{key}"
    fetched, content = call(fleet, "GET", place, **asked)
    assert (fetched.status, fetched.headers["Content-Encoding"]) == (200, "zstd")
    assert "immutable" in fetched.headers["Cache-Control"]
    head = PageHead.read(response.headers.get)
    page = pages.read(head, 1, data, is_zstd=True, dictionaries=[content])
    assert pages.entries(page.data) == plain
    asked["If_None_Match"] = fetched.headers["ETag"]
    assert call(fleet, "GET", place, **asked)[0].status == 304

    def status(other: str, number: int, token: str = header) -> int:
        address = f"/api/v1/partitions/{partition(other)}/dictionaries/{number}"
        return int(call(fleet, "GET", address, Authorization=token)[0].status)

    # It is made of documents of one cluster.
    stranger, _ = of_cluster(fleet, "south")
    assert (status("north", key), status("south", key)) == (200, 404)
    assert (status("north", key, stranger), status("south", key, stranger)) == (404, 404)
    assert (status("north", 1), status("north", 9999999999999999999)) == (404, 404)


def test_leases_whose_answer_was_lost_are_given_again_at_once(fleet: Stack) -> None:
    header, uuid = worker(fleet)

    def ask(**message: Any) -> dict[str, int]:
        """{lease: partition} of the answer."""
        body = json.dumps({"worker": uuid, "max_partitions": 1, **message})
        response, data = call(fleet, "POST", LEASE, body, Authorization=header)
        assert response.status == 200, data
        return {item["lease"]: item["partition"] for item in json.loads(data)["leases"]}

    first = ask(leases=[])
    second = ask(leases=list(first))
    assert set(first.values()) | set(second.values()) == {partition("north"), partition("south")}
    # It does not say what it has.
    assert ask() == {}
    # The second answer never arrived.
    again = ask(leases=list(first))
    assert (set(again.values()), again.keys() & second.keys()) == (set(second.values()), set())
    assert set(Lease.objects.values_list("uuid", flat=True)) == {*map(UUID, (*first, *again))}
    response, data = call(
        fleet, "POST", LEASE, json.dumps({"worker": uuid, "leases": ["x"]}), Authorization=header
    )
    assert (response.status, json.loads(data)["field"]) == (400, "leases")


def test_a_worker_is_known_under_its_own_token_alone(fleet: Stack) -> None:
    _, uuid = of_cluster(fleet, "north")
    stranger, _ = worker(fleet)
    body = json.dumps({"worker": uuid})
    response, data = call(fleet, "POST", LEASE, body, Authorization=stranger)
    assert (response.status, json.loads(data)["code"]) == (410, "worker_gone")


def test_a_revoked_token_reads_and_leases_nothing(fleet: Stack) -> None:
    header, uuid = of_cluster(fleet, "north")
    assert nodes(fleet, header, "north")[0] == 200
    WorkerToken.objects.update(revoked_at=Now())
    assert nodes(fleet, header, "north")[0] == 401
    body = json.dumps({"worker": uuid})
    assert call(fleet, "POST", LEASE, body, Authorization=header)[0].status == 401


def test_batches_are_cached_and_named_by_the_incarnation(fleet: Stack) -> None:
    """The same rev, of another document, after the database went back."""
    header, _ = worker(fleet)
    before = incarnation.current()
    path = f"/api/v1/partitions/{partition('north')}/nodes?incarnation="
    first, body = call(fleet, "GET", f"{path}{before}", Authorization=header)
    execute("UPDATE document SET xml = '<other/>'")
    execute(ELSEWHERE)
    gone, problem = call(fleet, "GET", f"{path}{before}", Authorization=header)
    assert (gone.status, json.loads(problem)["code"]) == (410, "incarnation_changed")
    seen = {"Authorization": header, "If_None_Match": first.headers["ETag"]}
    second, other = call(fleet, "GET", f"{path}{incarnation.current()}", **seen)
    assert (second.status, json.loads(other)["rev"]) == (200, json.loads(body)["rev"])
    assert json.loads(other)["nodes"][0]["probes"] == {"lshw": "<other/>"}


@pytest.mark.parametrize(
    ("query", "code", "field"),
    [
        ("since=-1", "invalid", "since"),
        ("after=x", "invalid", "after"),
        ("max_nodes=", "invalid", "max_nodes"),
        (f"max_bytes={'9' * 19}", "invalid", "max_bytes"),
        ("sins=1", "unknown_field", "sins"),
        ("%FF=1", "unknown_field", "\ufffd"),
    ],
)
def test_batches_refuse_parameters_that_do_not_fit(
    fleet: Stack, query: str, code: str, field: str
) -> None:
    header, _ = worker(fleet)
    status, problem = nodes(fleet, header, "north", query)
    assert (status, problem["code"], problem["field"]) == (400, code, field)


def test_batches_bring_sizes_down_to_what_is_allowed(fleet: Stack) -> None:
    header, _ = worker(fleet)
    status, batch = nodes(fleet, header, "north", f"since=0&max_nodes=0&max_bytes={'9' * 18}")
    assert (status, len(batch["nodes"])) == (200, 1)


def test_the_events_of_a_rebuild_go_on_to_its_end(fleet: Stack) -> None:
    work(a_worker())
    token = token_of("admin")
    body = json.dumps({"tags": ["gpu"]})
    json_type = "application/json"
    response, data = call(
        fleet, "POST", "/api/v1/rebuilds/", body, Authorization=token, Content_Type=json_type
    )
    assert response.status == 202, data
    path = f"/api/v1/rebuilds/{json.loads(data)['uuid']}/events"
    host, _, port = fleet.listen.partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    connection.request("GET", path, headers={"Authorization": token})
    stream = connection.getresponse()
    assert stream.headers["Content-Type"] == "text/event-stream"
    assert stream.readline() == b"event: progress\n"
    first = json.loads(stream.readline()[6:])
    assert (first["state"], first["done"], first["total"]) == ("running", 0, 2)
    work(a_worker(name="other"))
    rest = stream.read().decode().strip().splitlines()
    connection.close()
    assert rest[-2] == "event: end"
    last = json.loads(rest[-1].removeprefix("data: "))
    assert (last["state"], last["done"], last["nodes_done"]) == ("complete", 2, 2)
    again = call(fleet, "GET", path, Authorization=token)[1]
    assert again.startswith(b"event: end\n")
    assert call(fleet, "GET", path)[0].status == 401


def posted(stack: Stack, header: str, **message: Any) -> tuple[int, Any]:
    path = "/api/v1/workers/complete"
    response, data = call(stack, "POST", path, json.dumps(message), Authorization=header)
    return response.status, json.loads(data)


def test_a_completion_asks_for_the_next_lease(fleet: Stack) -> None:
    """What it names is kept; what it does not name never arrived."""
    header, uuid = worker(fleet)
    body = json.dumps({"worker": uuid, "max_partitions": 1})
    _, data = call(fleet, "POST", LEASE, body, Authorization=header)
    leased = json.loads(data)
    (lease,) = leased["leases"]
    result = {
        **{"lease": lease["lease"], "partition": lease["partition"], "rev": lease["rev"]},
        **{"matches": [], "failures": [], "documents": 0, "seconds": 0.0},
    }
    said = {"worker": uuid, "incarnation": leased["incarnation"], "results": [result]}
    following = {"max_partitions": 8, "holds": [], "leases": []}
    status, answer = posted(fleet, header, **said, next=following)
    assert (status, answer["results"][0]["outcome"]) == (200, "applied")
    # The other one: its own, for which it had no match, waits behind it.
    (following_lease,) = answer["next"]["leases"]
    both = {partition("north"), partition("south")}
    assert {lease["partition"], following_lease["partition"]} == both
    assert answer["next"]["incarnation"] == leased["incarnation"]
    # A worker of protocol 1 asks for nothing, and is sent nothing that it does not know.
    status, answer = posted(fleet, header, **said)
    assert (status, answer.keys(), answer["results"][0]["outcome"]) == (200, {"results"}, "late")
    status, problem = posted(fleet, header, **said, next={"max_partitions": 0})
    assert (status, problem["field"]) == (400, "max_partitions")


def test_only_a_worker_that_speaks_it_is_told_the_newer_protocol(fleet: Stack) -> None:
    _, token = workers.issue_token("older", "all")
    said = {"name": "w", "evaluator": "lxml", "version": "1"}
    for asked, answered in (({}, None), ({"protocol": 2}, 2), ({"protocol": 9}, VERSION)):
        response, data = call(
            fleet,
            "POST",
            "/api/v1/workers/register",
            json.dumps({**said, **asked}),
            Authorization=f"Worker {token}",
            Content_Type="application/json",
        )
        assert (response.status, json.loads(data).get("protocol")) == (201, answered)


def test_a_worker_that_is_too_old_is_told_to_upgrade(fleet: Stack) -> None:
    _, token = workers.issue_token("ancient", "all")
    said = {"name": "w", "evaluator": "lxml", "version": "0.0.9", "protocol": 0}
    response, data = call(
        fleet,
        "POST",
        "/api/v1/workers/register",
        json.dumps(said),
        Authorization=f"Worker {token}",
        Content_Type="application/json",
    )
    problem = json.loads(data)
    assert (response.status, problem["code"]) == (409, "protocol_too_old")
    assert "0.0.9" in problem["detail"] and "upgrade the worker" in problem["detail"]


def test_an_expression_set_is_fetched_once_for_ever(fleet: Stack) -> None:
    header, uuid = worker(fleet)
    body = json.dumps({"worker": uuid, "max_partitions": 8, "sets": True})
    _, data = call(fleet, "POST", LEASE, body, Authorization=header)
    version = json.loads(data)["set"]
    path = f"/api/v1/expression-sets/{version}"
    response, data = call(fleet, "GET", path, Authorization=header)
    assert response.status == 200
    (found,) = load(ExpressionSet, data).expressions
    assert (found.text, response.headers["Cache-Control"]) == (
        HAS_GPU,
        "private, max-age=31536000, immutable",
    )
    packed, zipped = call(fleet, "GET", path, Authorization=header, Accept_Encoding="zstd")
    assert packed.headers["Content-Encoding"] == "zstd"
    assert zstd.unpack(zipped, 1 << 20) == data
    etag = response.headers["ETag"]
    again, nothing = call(fleet, "GET", path, Authorization=header, If_None_Match=etag)
    assert (again.status, nothing) == (304, b"")
    for other, headers, status, code in (
        ("0" * 32, {"Authorization": header}, 404, "unknown_expression_set"),
        (version, {"Authorization": "Worker tmw_x"}, 401, "unauthorized"),
        (version, {}, 401, "unauthorized"),
    ):
        response, data = call(fleet, "GET", f"/api/v1/expression-sets/{other}", **headers)
        assert (response.status, json.loads(data)["code"]) == (status, code)


def sets_fetched(stack: Stack) -> float:
    _, data = call(stack, "GET", "/metrics")
    rows = [row for row in data.decode().splitlines() if 'route="expression_set"' in row]
    return sum(float(row.split()[-1]) for row in rows if "requests_total" in row)


def test_a_real_worker_fetches_a_set_once(fleet: Stack, tmp_path: Path) -> None:
    _, token = workers.issue_token("real", "all")
    before = sets_fetched(fleet)
    with running(Stack(fleet.listen, token, tmp_path)) as owner:
        owner.start_workers(1)
        until(lambda: not staleness.stale_partitions(), "evaluated")
        rebuilds.request(["gpu"], None)
        until(lambda: not staleness.stale_partitions(), "evaluated again")
    assert sets_fetched(fleet) == before + 1
    assert carriers("gpu") == {"a", "b"}


def test_a_token_that_is_revoked_completes_nothing(fleet: Stack) -> None:
    header, uuid = of_cluster(fleet, "north")
    WorkerToken.objects.update(revoked_at=Now())
    said = {"worker": uuid, "incarnation": str(incarnation.current()), "results": []}
    status, problem = posted(fleet, header, **said)
    assert (status, problem["code"]) == (401, "unauthorized")
    # Nor does a stranger learn what is wrong with a message.
    status, problem = posted(fleet, header, worker=uuid)
    assert (status, problem["code"]) == (401, "unauthorized")


@pytest.mark.parametrize("pace", [{"document": -1.0, "evaluation": 0.0}, {"document": 0.1}, 3])
def test_a_pace_that_cannot_be_is_refused(fleet: Stack, pace: Any) -> None:
    header, uuid = worker(fleet)
    body = json.dumps({"worker": uuid, "max_partitions": 1, "pace": pace})
    response, data = call(fleet, "POST", LEASE, body, Authorization=header)
    assert (response.status, json.loads(data)["code"]) == (400, "invalid")
