"""Roles in single clusters: whoever has one there reads and changes what is there, and nothing
else, by whichever address."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User

from api import rights, tokens, users
from api.roles import Role
from api.server.described import OPERATIONS
from loadtest.rig.stack import Stack
from tagmill.audit.models import Event
from tagmill.fleet import clusters
from tagmill.fleet.models import Cluster, Node
from tests.api.test_roles import ADDRESSES
from tests.server.test_operations import filled
from tests.server.test_serve import call
from tests.server.test_workers import fleet

__all__ = ["fleet"]

NDJSON = "application/x-ndjson"
JSON = "application/json"
SECRET = "of-the-south"
API = "/api/v1/"
# Where a role in some clusters is enough, by method.
IN_CLUSTERS = {
    ("get", "clusters/"),
    ("get", "clusters/{cluster}"),
    ("get", "nodes/"),
    ("post", "nodes/"),
    *((method, "nodes/{system_id}") for method in ("get", "put", "patch", "delete")),
    ("get", "nodes/{system_id}/tags"),
    ("get", "places"),
    *((method, "nodes/{system_id}/document") for method in ("get", "put", "delete")),
    *(("post", f"nodes/{name}") for name in ("import", "update", "delete")),
}
# Everybody may: it says nothing of clusters but their own.
OPEN = {"auth/token", "", "auth/tokens/", "auth/tokens/x"}


def login(name: str, role: Role | None = None, **roles: str) -> str:
    """The Authorization of a user with these roles in these clusters."""
    user = User.objects.create_user(name)
    users.set_role(name, role.label if role else None)
    user = users.set_cluster_roles(name, roles)
    return f"Token {tokens.issue(user, rights.most(user), days=1)[1]}"


@pytest.fixture
def two(fleet: Stack) -> Stack:
    """`fleet`, in which everything of the south has a name to tell it by."""
    Node.objects.filter(system_id="b").update(hostname=SECRET)
    clusters.rename(Cluster.objects.get(name="south"), SECRET)
    return fleet


def ask(stack: Stack, who: str, method: str, path: str, *sent: Any) -> tuple[int, str]:
    """(status, answer) of what is sent: a body, and its type where it is not JSON."""
    body, kind = (*sent, *(None, JSON)[len(sent) :])
    data = body if body is None or isinstance(body, str) else json.dumps(body)
    headers = {"Authorization": who} | ({"Content_Type": kind} if data is not None else {})
    answer, found = call(stack, method.upper(), API + path, data, **headers)
    return answer.status, found.decode()


def test_nothing_of_another_cluster_is_shown_or_changed_by_any_address(two: Stack) -> None:
    who = login("ann", north="operator")
    before = Node.objects.get(system_id="b")
    native = {
        (operation.method, operation.path.removeprefix(API))
        for operation in OPERATIONS
        if operation.path.startswith(API) and "workerToken" not in operation.schemes
    }
    asked = native | {
        (
            method,
            path.replace("nodes/x", "nodes/{system_id}").replace(
                "clusters/x", "clusters/{cluster}"
            ),
        )
        for method, path, _ in ADDRESSES
        if path not in OPEN
    }
    assert asked > IN_CLUSTERS
    south = Cluster.objects.get(name=SECRET)
    for method, path in sorted(asked):
        named = path.replace("{system_id}", "b").replace("{cluster}", str(south.uuid))
        status, found = ask(two, who, method, filled(named))
        is_open = (method, path) in IN_CLUSTERS
        assert (status == 403) != is_open or status in {403, 404}, (method, path, status, found)
        assert is_open or status == 403, (method, path, status, found)
        assert SECRET not in found and status != 500, (method, path, found)
    after = Node.objects.get(system_id="b")
    assert (after.rev, after.deleted_at) == (before.rev, None)


def test_lists_show_the_clusters_that_were_given(two: Stack) -> None:
    who, everywhere = login("ann", north="viewer"), login("bob", Role.VIEWER, north="operator")
    none = login("eve")

    def listed(who: str, path: str) -> list[str]:
        status, found = ask(two, who, "get", path)
        assert status == 200, found
        return sorted(
            each.get("system_id", each.get("name")) for each in json.loads(found)["results"]
        )

    for path in (
        "nodes/",
        "nodes/?order=system_id",
        "nodes/?order=-system_id",
        "nodes/?count=true",
    ):
        assert listed(everywhere, path) == ["a", "b"]
        # Asked for after the other, whose answer may be kept.
        assert listed(who, path) == ["a"]
    for path in ("places", "places?q=a"):
        found = json.loads(ask(two, who, "get", path)[1])
        assert [part["cluster"] for part in found["partitions"]] == ["north"]
    assert json.loads(ask(two, who, "get", "nodes/?count=true")[1])["count"] == 1
    assert listed(who, "nodes/?cluster=north") == ["a"]
    assert ask(two, who, "get", f"nodes/?cluster={SECRET}")[0] == 404
    assert (listed(everywhere, "clusters/"), listed(who, "clusters/")) == (
        ["north", SECRET],
        ["north"],
    )
    status, lines = call(
        two, "GET", API + "nodes/?include=probes", Authorization=who, Accept=NDJSON
    )
    assert status.status == 200 and [json.loads(x)["system_id"] for x in lines.splitlines()] == [
        "a"
    ]
    assert ask(two, who, "get", "nodes/a")[0] == 200
    assert [ask(two, who, "get", f"nodes/b{x}")[0] for x in ("", "/tags", "/document")] == [404] * 3
    assert ask(two, none, "get", "nodes/")[0] == ask(two, who, "get", "tags/")[0] == 403


def test_what_is_written_stays_in_the_clusters_that_were_given(two: Stack) -> None:
    who = login("ann", north="operator")
    xml, south = "<list><a/></list>", {"cluster": SECRET}
    refused = [
        ("post", "nodes/", {"system_id": "c", **south}, JSON),
        ("post", "nodes/", {"system_id": "c", "cluster": "nowhere"}, JSON),
        ("put", "nodes/c", south, JSON),
        ("put", "nodes/b", {"cluster": "north"}, JSON),
        ("patch", "nodes/a", south, JSON),
        ("patch", "nodes/b", {"hostname": "x"}, JSON),
        ("delete", "nodes/b", None, JSON),
        ("put", "nodes/b/document", xml, "application/xml"),
        ("put", "nodes/b/document?cluster=north", xml, "application/xml"),
        ("put", f"nodes/a/document?cluster={SECRET}", xml, "application/xml"),
        ("put", f"nodes/c/document?cluster={SECRET}", xml, "application/xml"),
    ]
    for method, path, body, kind in refused:
        status, found = ask(two, who, method, path, body, kind)
        assert (status, json.loads(found)["code"]) == (403, "forbidden"), (method, path, found)
    lines = {
        "import": [
            {"system_id": "b", "hostname": "x"},
            {"system_id": "a", **south},
            {"system_id": "c"},
        ],
        "update": [{"system_id": "b", "cluster": "north"}, {"system_id": "a", **south}],
        "delete": [{"system_id": "b"}, {"system_id": "b"}],
    }
    for name, given in lines.items():
        body = "\n".join(map(json.dumps, given))
        status, found = ask(two, who, "post", f"nodes/{name}", body, NDJSON)
        outcomes = [json.loads(line).get("outcome") for line in found.splitlines()]
        assert (status, outcomes) == (200, ["refused"] * len(given) + [None]), found
    where = dict(
        Node.objects.filter(deleted_at=None).values_list("system_id", "partition__cluster__name")
    )
    assert where == {"a": "north", "b": SECRET}
    allowed = [
        ("post", "nodes/", {"system_id": "c", "cluster": "north"}, JSON, 201),
        ("patch", "nodes/c", {"hostname": "x"}, JSON, 200),
        ("put", "nodes/c/document", xml, "application/xml", 200),
        ("delete", "nodes/c/document", None, JSON, 204),
        ("delete", "nodes/c", None, JSON, 204),
    ]
    for method, path, body, kind, expected in allowed:
        status, found = ask(two, who, method, path, body, kind)
        assert status == expected, (method, path, found)


def test_a_role_in_a_cluster_is_given_shown_audited_and_taken_away(two: Stack) -> None:
    admin, who = login("root", Role.ADMIN), login("ann", Role.VIEWER)
    assert ask(two, who, "delete", "nodes/a")[0] == 403
    given = {"clusters": {"north": "operator", SECRET: "uploader"}}
    status, found = ask(two, admin, "patch", "users/ann", given)
    assert (status, json.loads(found)["clusters"]) == (200, given["clusters"])
    event = Event.objects.filter(kind="user", name="ann").latest("id")
    assert (event.actor, event.changes["role"][1], event.changes["cluster"][1]) == (
        ("root", "uploader", SECRET)
        if SECRET in str(event.changes)
        else ("root", "operator", "north")
    )
    # What its token may is still the limit.
    assert ask(two, who, "delete", "nodes/a")[0] == 403
    ann = User.objects.get(username="ann")
    who = f"Token {tokens.issue(ann, rights.most(ann), days=1)[1]}"
    whose = json.loads(ask(two, who, "get", "auth/token")[1])
    assert (whose["user"], whose["role"]) == ("ann", "viewer")
    assert whose["clusters"] == {"north": "operator", SECRET: "viewer+uploader"}
    assert ask(two, who, "delete", "nodes/a")[0] == 204
    assert ask(two, who, "delete", "nodes/b")[0] == 403
    assert ask(two, admin, "patch", "users/ann", {"clusters": {SECRET: None}})[0] == 200
    assert ask(two, who, "patch", "nodes/b", {"hostname": "x"})[0] == 403
    for wrong in ({}, {"clusters": {"north": "admin"}}, {"clusters": {"nowhere": "viewer"}}):
        assert ask(two, admin, "patch", "users/ann", wrong)[0] in {400, 404}
    Node.objects.filter(partition__cluster__name="north").delete()
    assert ask(two, admin, "delete", "clusters/north")[0] == 204
    assert rights.in_clusters(User.objects.get(username="ann")) == []
