"""Django's admin site."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from tagmill.fleet.models import Cluster
from tagmill.tags.models import Rebuild, Tag
from tagmill.work.models import Worker, WorkerToken
from tests.support.http import make_user

FORM = {"name": "gpu", "comment": "", "kernel_opts": "", "namespaces": "{}"}


@pytest.fixture
def site(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


def text(answer: Any) -> str:
    assert answer.status_code == 200, answer
    page: str = answer.content.decode()
    return page


def test_every_list_opens(
    site: Client,
    operator: APIClient,
    worker: APIClient,
    put: Callable[..., None],
    evaluate: Callable[[], int],
) -> None:
    put("a")
    operator.post("/api/v1/tags/", {"name": "gpu", "definition": "//node"}, format="json")
    evaluate()
    for page in (
        "", "tags/tag/", "fleet/cluster/", "fleet/partition/", "fleet/node/", "tags/rebuild/",
        "work/worker/", "work/workertoken/", "auth/user/", "auth/group/",
        "procrastinate/procrastinatejob/",
    ):  # fmt: skip
        assert "Tagmill" in text(site.get(f"/admin/{page}")), page
    Worker.objects.update(host="of-this-host", pid=4711)
    page = text(site.get("/admin/work/worker/"))
    assert "of-this-host" in page
    assert "4711" in page


def test_selected_tags_are_deleted(
    site: Client, operator: APIClient, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    put("a")
    for name in ("gpu", "any", "kept"):
        operator.post("/api/v1/tags/", {"name": name, "definition": f"//{name}"}, format="json")
    keys = list(Tag.objects.exclude(name="kept").values_list("pk", flat=True))
    form = {"action": "delete_selected", "_selected_action": keys, "post": "yes"}
    assert "deleted 2 tags" in text(site.post("/admin/tags/tag/", form, follow=True))
    assert [tag.name for tag in Tag.objects.all()] == ["kept"]


def test_the_list_of_tags_shows_state_and_counts(
    site: Client, operator: APIClient, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    put("a", "b")
    operator.post("/api/v1/tags/", {"name": "gpu", "definition": "//node"}, format="json")
    assert "building" in text(site.get("/admin/tags/tag/"))
    evaluate()
    page = text(site.get("/admin/tags/tag/"))
    assert "ready" in page
    assert '<td class="field-nodes">2</td>' in page
    assert "<code>//node</code>" in page


def test_a_tag_made_in_the_admin_goes_through_the_domain(
    site: Client, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    put("a")
    made = site.post("/admin/tags/tag/add/", {**FORM, "definition": "//node"})
    assert made.status_code == 302, made.content
    assert evaluate() == 1
    tag = Tag.objects.get(name="gpu")
    assert tag.expression is not None
    assert tag.expression.text == "//node"
    changed = site.post(f"/admin/tags/tag/{tag.pk}/change/", {**FORM, "definition": "//x"})
    assert changed.status_code == 302, changed.content
    tag.refresh_from_db()
    assert tag.expression.text == "//node"
    assert tag.pending_expression is not None
    assert tag.pending_expression.text == "//x"


def test_a_definition_that_does_not_parse_is_shown_at_its_field(site: Client, db: None) -> None:
    page = site.post("/admin/tags/tag/add/", {**FORM, "definition": "//node["})
    assert "(column " in text(page)
    assert "definition" in page.context["adminform"].form.errors
    assert not Tag.objects.exists()


def test_selected_tags_are_rebuilt(
    site: Client, operator: APIClient, put: Callable[..., None], evaluate: Callable[[], int]
) -> None:
    put("a")
    for name in ("x", "y"):
        operator.post("/api/v1/tags/", {"name": name, "definition": f"//{name}"}, format="json")
    evaluate()
    chosen = {
        "action": "rebuild_selected",
        "_selected_action": [tag.pk for tag in Tag.objects.all()],
    }
    page = site.post("/admin/tags/tag/", chosen, follow=True)
    assert "Rebuild " in text(page)
    rebuild = Rebuild.objects.get(reason="forced")
    assert rebuild.requested_by == User.objects.get(username="root")
    assert rebuild.tags.count() == 2
    assert "<progress" in text(site.get("/admin/tags/rebuild/"))


def test_a_worker_token_is_shown_once(site: Client, cluster: Cluster) -> None:
    page = site.post(
        "/admin/work/workertoken/add/", {"name": "rack", "clusters": [cluster.pk]}, follow=True
    )
    token = WorkerToken.objects.get()
    assert f"tmw_{token.lookup}_" in text(page)
    assert list(token.clusters.all()) == [cluster]
    assert f"tmw_{token.lookup}_" not in text(site.get("/admin/work/workertoken/"))


def test_a_viewer_on_the_staff_may_look_and_not_change(db: None, cluster: Cluster) -> None:
    user = make_user("viewer")
    user.is_staff = True
    user.save()
    client = Client()
    client.force_login(user)
    assert client.get("/admin/tags/tag/").status_code == 200
    assert client.get("/admin/tags/tag/add/").status_code == 403


def test_the_tag_form_looks_while_somebody_types(site: Client, operator: APIClient) -> None:
    """What the script needs, and the script; tests/api/test_lint.py has what it asks for."""
    page = text(site.get("/admin/tags/tag/add/"))
    assert 'data-lint-url="/api/v1/definitions/lint"' in page
    assert 'data-preview-url="/api/v1/previews/"' in page
    assert "data-tag=" not in page
    made = operator.post("/api/v1/tags/", {"name": "gpu", "definition": "//a"}, format="json")
    tag = Tag.objects.get(name=made.json()["name"])
    page = text(site.get(f"/admin/tags/tag/{tag.pk}/change/"))
    assert 'data-tag="gpu"' in page
    for kind in ("js", "css"):
        (address,) = re.findall(rf'"(/static/api/tag_form\.{kind})"', page)
        script = b"".join(site.get(address).streaming_content).decode()
        assert "tagmill-lint" in script
        # Nothing from elsewhere, and no text as markup.
        assert "http" not in script
        assert "innerHTML" not in script


def test_the_form_may_ask_with_the_session_and_its_token(site: Client, operator: APIClient) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = site.cookies
    page = text(strict.get("/admin/tags/tag/add/"))
    (token,) = set(re.findall(r'csrfmiddlewaretoken" value="([^"]+)', page))
    asked = {"definition": "count(//node)"}
    refused = strict.post("/api/v1/definitions/lint", asked, content_type="application/json")
    assert refused.status_code == 403
    answer = strict.post(
        "/api/v1/definitions/lint",
        asked,
        content_type="application/json",
        headers={"X-CSRFToken": token},
    )
    assert [warning["code"] for warning in answer.json()["warnings"]] == ["number_valued"]


def test_warnings_are_told_after_saving_too(site: Client) -> None:
    fields = {**FORM, "definition": "count(//node)"}
    page = text(site.post("/admin/tags/tag/add/", fields, follow=True))
    assert "number_valued" in page


def test_a_definition_of_two_lines_is_the_one_that_was_previewed(site: Client) -> None:
    site.post("/admin/tags/tag/add/", {**FORM, "definition": "//a or\r\n//b"})
    tag = Tag.objects.select_related("expression").get()
    assert tag.expression is not None
    assert tag.expression.text == "//a or\n//b"
