"""Entity tags, and writes that are conditional on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from rest_framework.test import APIClient

from api import etags
from tagmill.errors import PreconditionFailed
from tagmill.fleet import clusters
from tagmill.fleet.models import Cluster, Document, Node
from tagmill.flows import ingest
from tagmill.flows.ingest import Upload
from tagmill.tags import tags
from tagmill.tags.models import Tag
from tests.support.http import problem
from tests.support.threads import done, in_thread, until_blocked

OTHER = '"0123"'
# (address, a change of it)
RESOURCES = [
    ("tags/gpu", {"comment": "new"}),
    ("nodes/a", {"hostname": "new"}),
    ("clusters/north", {"name": "new"}),
]


@pytest.fixture
def things(put: Callable[..., None], admin: APIClient) -> APIClient:
    """A client, and one of each resource."""
    put("a")
    admin.post("/api/v1/tags/", {"name": "gpu", "definition": "//node"}, format="json")
    clusters.create("empty")
    return admin


def send(client: APIClient, method: str, address: str, body: Any = None, **headers: str) -> Any:
    call = getattr(client, method)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return call(f"/api/v1/{address}", body, format="json", headers=given)


@pytest.mark.parametrize(("address", "change"), RESOURCES)
def test_a_change_is_made_only_to_what_was_seen(
    things: APIClient, address: str, change: dict[str, str]
) -> None:
    seen = things.get(f"/api/v1/{address}")["ETag"]
    assert things.get(f"/api/v1/{address}")["ETag"] == seen
    answer = send(things, "patch", address, change, If_Match=OTHER)
    problem(answer, 412, "precondition_failed")
    assert things.get(f"/api/v1/{address}")["ETag"] == seen
    changed = send(things, "patch", address, change, If_Match=f"{OTHER}, {seen}")
    assert changed.status_code == 200
    assert changed["ETag"] != seen
    new = address.replace("north", "new")
    assert things.get(f"/api/v1/{new}")["ETag"] == changed["ETag"]
    # A second one that saw the same is refused, and a weak tag never matches.
    problem(send(things, "patch", new, change, If_Match=seen), 412, "precondition_failed")
    weak = f"W/{changed['ETag']}"
    problem(send(things, "patch", new, change, If_Match=weak), 412, "precondition_failed")
    assert send(things, "patch", new, change, If_Match="*").status_code == 200


@pytest.mark.parametrize("address", ["tags/gpu", "nodes/a", "clusters/empty", "nodes/a/document"])
def test_only_what_was_seen_is_deleted(things: APIClient, address: str) -> None:
    seen = things.get(f"/api/v1/{address}")["ETag"]
    problem(send(things, "delete", address, If_Match=OTHER), 412, "precondition_failed")
    assert things.get(f"/api/v1/{address}")["ETag"] == seen
    assert send(things, "delete", address, If_Match=seen).status_code == 204
    problem(things.get(f"/api/v1/{address}"), 404, "not_found")


@pytest.mark.parametrize("header", ["If-Match", "If-None-Match", "If-Unmodified-Since"])
@pytest.mark.parametrize(
    ("method", "address"),
    [
        ("post", "tags/"),
        ("post", "tags/gpu/assign"),
        ("post", "tags/gpu/rebuild"),
        ("post", "nodes/"),
        ("post", "clusters/"),
        ("post", "user-tokens/"),
        ("patch", "users/ann"),
    ],
)
def test_a_condition_that_nobody_checks_is_refused(
    admin: APIClient, method: str, address: str, header: str
) -> None:
    answer = getattr(admin, method)(f"/api/v1/{address}", headers={header: "*"})
    assert header in problem(answer, 412, "condition_not_supported")["detail"]


def test_a_date_is_no_condition_that_is_understood(things: APIClient) -> None:
    when = "Thu, 01 Jan 2026 00:00:00 GMT"
    answer = send(things, "patch", "tags/gpu", {"comment": "x"}, If_Unmodified_Since=when)
    problem(answer, 412, "condition_not_supported")


def test_a_tag_keeps_its_entity_tag_while_it_is_evaluated_and_published(
    things: APIClient, evaluate: Callable[[], int]
) -> None:
    seen = things.get("/api/v1/tags/gpu")
    assert evaluate()
    published = things.get("/api/v1/tags/gpu", headers={"If-None-Match": seen["ETag"]})
    assert published.status_code == 200
    assert published.json()["state"] == "ready"
    assert published["ETag"] == seen["ETag"]


@pytest.mark.parametrize("address", ["tags/gpu/nodes", "nodes/a/document"])
def test_an_answer_without_a_body_describes_none(things: APIClient, address: str) -> None:
    whole = things.get(f"/api/v1/{address}")
    same = things.get(f"/api/v1/{address}", headers={"If-None-Match": whole["ETag"]})
    assert (same.status_code, same.content, same["ETag"]) == (304, b"", whole["ETag"])
    assert not {"Content-Type", "Content-Length"} & set(same.headers)


def test_a_node_that_was_seen_in_another_incarnation_is_seen_again(things: APIClient) -> None:
    """The same rev may be another document's then."""
    seen = things.get("/api/v1/nodes/a")["ETag"]
    with connection.cursor() as cursor:
        cursor.execute("UPDATE incarnation SET history = 'elsewhere'")
    answer = send(things, "patch", "nodes/a", {"hostname": "new"}, If_Match=seen)
    problem(answer, 412, "precondition_failed")
    again = things.get("/api/v1/nodes/a")["ETag"]
    answer = send(things, "patch", "nodes/a", {"hostname": "new"}, If_Match=again)
    assert answer.status_code == 200


def test_different_things_have_different_entity_tags() -> None:
    found = {
        etags.make("node", 1, 23),
        etags.make("node", 12, 3),
        etags.make("node", "1", 23),
        etags.make("nod", "e", 1, 23),
        etags.of_node(None, 2, 23),
        etags.of_document(b"\0"),
        etags.of_document(b""),
    }
    assert len(found) == 7
    assert all(tag[0] == tag[-1] == '"' and len(tag) == 34 for tag in found)


def _tag() -> None:
    tags.update("gpu", expects=_raises_unless("", lambda tag: tag.comment), comment="mine")


def _node() -> None:
    upload = Upload("a", hostname="mine", expects=_raises_unless("host-a", lambda n: n.hostname))
    (verdict,) = ingest.store([upload])
    if verdict.error:
        raise verdict.error


def _gone() -> None:
    ingest.delete("a", _raises_unless("host-a", lambda node: node.hostname))


def _cluster() -> None:
    north = Cluster.objects.get(uuid=Cluster.objects.get().uuid)
    clusters.rename(north, "mine", _raises_unless("north", lambda cluster: cluster.name))


def _raises_unless(seen: str, read: Callable[[Any], str]) -> Callable[[Any], None]:
    def check(found: Any) -> None:
        if read(found) != seen:
            raise PreconditionFailed("changed")

    return check


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("write", [_tag, _node, _gone, _cluster])
def test_a_condition_is_checked_under_the_lock(write: Callable[[], None]) -> None:
    """A write that waits for another one sees what that one wrote."""
    clusters.create("north")
    ingest.store([Upload("a", "north", "host-a", None, {"lshw": b"<list/>"})])
    tags.create("gpu")
    with transaction.atomic():
        tags.update("gpu", comment="theirs")
        ingest.store([Upload("a", hostname="theirs")])
        clusters.rename(Cluster.objects.get(), "theirs")
        waiting = in_thread(write)
        until_blocked()
    with pytest.raises(PreconditionFailed):
        done(waiting)
    assert Tag.objects.get().comment == "theirs"
    assert Node.objects.get(deleted_at=None).hostname == "theirs"
    assert Cluster.objects.get().name == "theirs"
    assert Document.objects.exists()
