"""Manual tags become automatic and automatic ones manual, where somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from rest_framework.test import APIClient

from tagmill.errors import KindChange
from tagmill.flows import ingest
from tagmill.tags import assignments, freshness, tags
from tagmill.tags.models import Assignment, Rebuild
from tests.support.fleet import BARE, HAS_GPU, carriers, north, put, tag
from tests.support.http import client_of, problem
from tests.support.threads import done, in_thread, until_blocked
from tests.support.workers import a_worker, work

TAGS = "/api/v1/tags/"


@pytest.fixture
def operator(db: None) -> APIClient:
    north("a", "b", "c")
    put("bare", xml=BARE)
    return client_of("operator")


def patch(client: APIClient, name: str, **fields: Any) -> Any:
    return client.patch(f"{TAGS}{name}", fields, format="json")


def test_assigned_nodes_are_given_up_only_where_that_is_asked_for(operator: APIClient) -> None:
    tags.create("mine")
    # Nothing is lost of a tag without nodes.
    tags.create("empty")
    assert patch(operator, "empty", definition=HAS_GPU).status_code == 200
    assignments.assign("mine", ["a", "bare"], [])
    found = problem(patch(operator, "mine", definition=HAS_GPU), 409, "kind_change")
    assert "assigned by hand" in found["detail"] and found["field"] == "kind"
    assert tag("mine").pending_expression is None
    problem(patch(operator, "mine", kind="automatic"), 400, "invalid")
    answer = patch(operator, "mine", definition=HAS_GPU, kind="automatic")
    assert (answer.status_code, answer.json()["kind"]) == (200, "automatic")
    assert carriers("mine") == {"a", "bare"}
    work(a_worker())
    assert carriers("mine") == {"a", "b", "c"}


def test_an_automatic_tag_becomes_a_manual_one_with_the_nodes_that_it_shows(
    operator: APIClient,
) -> None:
    worker = a_worker()
    tags.create("gpu", definition=HAS_GPU)
    work(worker)
    tags.update("gpu", definition="//none")
    # Deleted after the evaluation: its bit is still there, and is not to be assigned.
    ingest.delete("b")
    found = problem(patch(operator, "gpu", definition=None), 409, "kind_change")
    assert "with the nodes that it has now" in found["detail"]
    problem(patch(operator, "gpu", definition=HAS_GPU, kind="manual"), 400, "invalid")
    answer = patch(operator, "gpu", definition=None, kind="manual")
    assert answer.status_code == 200, answer.content
    body = answer.json()
    assert (body["kind"], body["definition"], body["pending_definition"]) == ("manual", None, None)
    assert (body["state"], body["node_count"], carriers("gpu")) == ("ready", 2, {"a", "c"})
    assert not Rebuild.objects.filter(state="running").exists()
    work(worker)
    assert carriers("gpu") == {"a", "c"}
    assignments.assign("gpu", ["bare"], ["a"])
    assert carriers("gpu") == {"c", "bare"}
    changes = operator.get(f"{TAGS}gpu/changes").json()["results"]
    assert [(item["added"], item["removed"]) for item in changes] == [
        (["bare"], ["a"]),
        (["a", "c"], []),
    ]
    history = operator.get(f"{TAGS}gpu/history").json()["results"]
    assert history[1]["changes"]["definition"] == [HAS_GPU, None]
    # And back.
    assert patch(operator, "gpu", definition=HAS_GPU, kind="automatic").status_code == 200


def test_what_was_assigned_comes_back_where_the_first_definition_is_not_published(
    operator: APIClient,
) -> None:
    tags.create("mine")
    assignments.assign("mine", ["a", "bare"], [])
    tags.update("mine", definition=HAS_GPU, kind="automatic")
    tags.update("mine", kind="manual")
    assert (tag("mine").pending_expression, carriers("mine")) == (None, {"a", "bare"})
    assert Rebuild.objects.get().state == "superseded"


def test_a_new_tag_says_its_kind_or_leaves_it_to_its_definition(operator: APIClient) -> None:
    def post(**fields: Any) -> Any:
        return operator.post(TAGS, {"name": "t", **fields}, format="json")

    problem(post(kind="automatic"), 400, "invalid")
    problem(post(kind="manual", definition=HAS_GPU), 400, "invalid")
    assert post(kind="manual", definition=None).json()["kind"] == "manual"


def test_the_admin_asks_as_well(operator: APIClient) -> None:
    site = Client()
    site.force_login(User.objects.create_superuser("root"))
    tags.create("mine")
    assignments.assign("mine", ["a"], [])
    address = f"/admin/tags/tag/{tag('mine').id}/change/"
    form = {"name": "mine", "definition": HAS_GPU, "namespaces": "{}"}
    assert b"assigned by hand" in site.post(address, form).content
    assert site.post(address, {**form, "convert": "on"}).status_code == 302
    assert tag("mine").pending_expression is not None
    back = {**form, "definition": "", "convert": "on"}
    assert site.post(address, back).status_code == 302
    assert (tag("mine").pending_expression, carriers("mine")) == (None, {"a"})


@pytest.mark.django_db(transaction=True)
def test_a_node_that_is_deleted_meanwhile_is_not_assigned() -> None:
    north("a", "b")
    tags.create("gpu", definition=HAS_GPU)
    work(a_worker())
    convert: Callable[[], Any] = lambda: tags.update("gpu", kind="manual")  # noqa: E731
    with transaction.atomic():
        ingest.delete("a")
        waiting = in_thread(convert)
        until_blocked()
    done(waiting)
    found = freshness.status([tag("gpu")])[tag("gpu").id]
    assert (found.node_count, carriers("gpu")) == (1, {"b"})
    assert Assignment.objects.count() == 1
    with pytest.raises(KindChange):
        tags.update("gpu", definition=HAS_GPU)
