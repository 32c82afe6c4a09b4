"""Who changed what: the audit, and a tag's history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from api.models import UserToken
from tagmill.audit import acting, trail
from tagmill.audit.models import Event
from tagmill.fleet import clusters
from tagmill.tags.models import Rebuild, Tag
from tagmill.work.models import WorkerToken
from tests.support.fleet import HAS_GPU
from tests.support.http import make_user, problem
from tests.support.sql import execute
from tests.support.workers import a_worker, lease_one

AUDIT = "/api/v1/audit/"
TAGS = "/api/v1/tags/"


def events(client: APIClient, path: str = AUDIT, **wanted: str) -> list[dict[str, Any]]:
    answer = client.get(path, wanted)
    assert answer.status_code == 200, answer.content
    found: list[dict[str, Any]] = answer.json()["results"]
    return found


def said(found: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    return [(item["actor"], item["via"], item["name"], item["action"]) for item in found]


def test_a_tag_has_a_history_of_who_did_what(
    operator: APIClient,
    viewer: APIClient,
    put: Callable[..., None],
    evaluate: Callable[[], int],
) -> None:
    put("a", "b")
    made = operator.post(TAGS, {"name": "gpu", "definition": HAS_GPU}, format="json")
    evaluate()
    operator.patch(f"{TAGS}gpu", {"name": "gpus", "comment": "any"}, format="json")
    operator.patch(f"{TAGS}gpus", {"definition": "//node"}, format="json")
    operator.patch(f"{TAGS}gpus", {"comment": "any"}, format="json")
    found = events(viewer, f"{TAGS}gpus/history")
    assert said(found) == [
        ("the-operator", "api", "gpus", "changed"),
        ("the-operator", "api", "gpu", "changed"),
        ("rack", "worker", "gpu", "published"),
        ("the-operator", "api", "gpu", "created"),
    ]
    assert found[0]["changes"] == {
        "pending_definition": [None, "//node"],
        "pending_namespaces": [None, {}],
    }
    assert found[1]["changes"] == {"name": ["gpu", "gpus"], "comment": ["", "any"]}
    assert found[2]["changes"]["definition"] == [None, HAS_GPU]
    assert found[3]["request_id"] == made["X-Request-Id"]
    # Whose rebuilds they are is known, too.
    asked = Rebuild.objects.order_by("id").values_list("reason", "requested_by__username")
    assert list(asked) == [("created", "the-operator"), ("definition", "the-operator")]


def test_assignments_and_deletions_leave_a_trace(
    operator: APIClient, admin: APIClient, put: Callable[..., None]
) -> None:
    put("a", "b")
    operator.post(TAGS, {"name": "mine"}, format="json")
    for body in ({"add": ["a", "b"]}, {"remove": ["a"]}, {"add": ["b"]}):
        operator.post(f"{TAGS}mine/assign", body, format="json")
    operator.delete(f"{TAGS}mine")
    found = events(admin, kind="tag", name="mine")
    assert [(item["action"], item["changes"]) for item in found[:3]] == [
        ("deleted", found[0]["changes"]),
        ("assigned", {"added": 0, "removed": 1}),
        ("assigned", {"added": 2, "removed": 0}),
    ]
    assert found[0]["changes"]["name"] == ["mine", None]
    assert {item["actor"] for item in found} == {"the-operator"}


def test_clusters_tokens_users_and_roles_are_audited_and_secrets_are_not(
    admin: APIClient,
) -> None:
    north = admin.post("/api/v1/clusters/", {"name": "north"}, format="json").json()
    admin.patch(f"/api/v1/clusters/{north['uuid']}", {"name": "far-north"}, format="json")
    token = admin.post(
        "/api/v1/worker-tokens/", {"name": "rack", "clusters": ["far-north"]}, format="json"
    ).json()
    admin.delete(f"/api/v1/worker-tokens/{token['lookup']}")
    issued = admin.post(
        "/api/v1/user-tokens/", {"user": "ann", "role": "operator"}, format="json"
    ).json()
    User.objects.get(username="ann").set_password("hush")
    found = [item for item in events(admin) if item["actor"] == "the-admin"]
    assert [(item["kind"], item["name"], item["action"]) for item in reversed(found)] == [
        ("cluster", "north", "created"),
        ("cluster", "north", "changed"),
        ("worker_token", "rack", "created"),
        ("worker_token", "rack", "changed"),
        ("worker_token", "rack", "changed"),
        ("user", "ann", "created"),
        ("user", "ann", "changed"),
        ("user_token", "ann", "created"),
    ]
    by_name = {(item["kind"], *item["changes"]): item["changes"] for item in found}
    assert by_name["worker_token", "cluster"] == {"cluster": [None, "far-north"]}
    assert by_name["user", "role"] == {"role": [None, "operator"]}
    assert ("worker_token", "revoked_at") in by_name
    text = str(list(Event.objects.values_list("changes", flat=True)))
    row = WorkerToken.objects.get()
    assert bytes(row.secret_digest).hex() not in text
    assert bytes(UserToken.objects.get(user__username="ann").digest).hex() not in text
    assert issued["token"] not in text and "pbkdf2" not in text
    assert "'password': ['hidden', 'hidden']" in text


def test_the_admin_site_and_bulk_changes_are_audited(db: None, admin: APIClient) -> None:
    ann = make_user("viewer", "ann")
    site = Client()
    site.force_login(User.objects.create_superuser("root"))
    clusters.create("north")
    group = Group.objects.get(name="operator")
    form = {"username": "ann", "groups": [group.id], "date_joined_0": "2026-01-01"}
    answer = site.post(f"/admin/auth/user/{ann.id}/change/", {**form, "date_joined_1": "00:00:00"})
    assert answer.status_code == 302, answer.content
    found = events(admin, actor="root")
    roles = sorted(str(item["changes"]["role"]) for item in found if "role" in item["changes"])
    assert roles == ["['viewer', None]", "[None, 'operator']"]
    assert {item["via"] for item in found} == {"admin"}
    tag = Tag.objects.create(name="gpu")
    fields = {"name": "gpu", "definition": "//node", "namespaces": "{}"}
    site.post(f"/admin/tags/tag/{tag.id}/change/", fields)
    assert Rebuild.objects.get().requested_by.username == "root"
    tag.delete()
    Tag.objects.bulk_create([Tag(name="a"), Tag(name="b")])
    with acting.acting(lambda: acting.Actor("ann", "command")):
        Tag.objects.update(comment="all at once")
    found = events(admin, kind="tag", actor="ann")
    assert said(found) == [("ann", "command", "b", "changed"), ("ann", "command", "a", "changed")]
    # What nobody asked for is nobody's, although the transaction is the same here.
    Tag.objects.all().delete()
    assert {item["actor"] for item in events(admin, kind="tag", action="deleted")} == {""}


@pytest.mark.django_db(transaction=True)
def test_the_actor_does_not_stay_on_the_connection() -> None:
    with acting.acting(lambda: acting.Actor("ann", "api", "r1")):
        # Without a transaction of the caller's.
        Tag.objects.bulk_create([Tag(name="a")])
        Tag.objects.filter(name="a").update(comment="b")
    assert list(Event.objects.values_list("actor", "request_id")) == [("ann", "r1")] * 2
    assert execute("SELECT coalesce(current_setting('tagmill.actor', true), '')") == [("",)]
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO cluster (uuid, name) VALUES (gen_random_uuid(), 'raw')")
    assert Event.objects.filter(kind="cluster").values_list("actor", "via").get() == ("", "system")


def test_the_hot_paths_set_no_actor(operator: APIClient, put: Callable[..., None]) -> None:
    operator.post(TAGS, {"name": "gpu", "definition": HAS_GPU}, format="json")
    worker = a_worker()
    with CaptureQueriesContext(connection) as asked:
        put("a", "b")
        lease_one(worker)
    assert asked and not [query for query in asked if "tagmill.actor" in query["sql"]]


def test_only_admins_read_the_audit_and_filters_are_checked(
    operator: APIClient, admin: APIClient
) -> None:
    problem(operator.get(AUDIT), 403, "forbidden")
    problem(admin.get(AUDIT, {"kind": "node"}), 400, "invalid")
    problem(admin.get(AUDIT, {"since": "yesterday"}), 400, "invalid")
    problem(admin.get(AUDIT, {"who": "ann"}), 400, "unknown_field")
    clusters.create("north")
    clusters.create("south")
    assert len(events(admin, since="2020-01-01T00:00:00Z", kind="cluster")) == 2
    assert events(admin, until="2020-01-01") == []
    first = admin.get(AUDIT, {"kind": "cluster", "limit": "1"}).json()
    assert [item["name"] for item in first["results"]] == ["south"]
    rest = admin.get(first["next"]).json()
    assert [item["name"] for item in rest["results"]] == ["north"] and rest["next"] is None


def test_events_end(admin: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    clusters.create("north")
    clusters.create("south")
    Event.objects.filter(name="north").update(at="2020-01-01T00:00Z")
    assert trail.forget() == 1
    assert {item["name"] for item in events(admin, kind="cluster")} == {"south"}


def test_a_command_is_done_by_who_runs_it(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "_process", acting.Actor())
    acting.as_command()
    call_command("create_token", "--user", "ann", "--role", "viewer")
    found = set(Event.objects.filter(name="ann").values_list("via", flat=True))
    assert found == {"command"}
    assert all(Event.objects.filter(name="ann").values_list("actor", flat=True))
    monkeypatch.setattr(acting, "_process", acting.Actor())
