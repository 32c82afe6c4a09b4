"""OpenAPI, its browser, and the page in front."""

from __future__ import annotations

import inspect
from io import StringIO
from typing import Any

import orjson
import pytest
import yaml
from django.core.management import call_command
from drf_spectacular.views import SpectacularAPIView
from rest_framework.test import APIClient

from api.rest.base import Resource

METHODS = {"get", "post", "put", "patch", "delete"}


@pytest.fixture(scope="module")
def schema() -> Any:
    """Made with warnings as errors, and validated."""
    out = StringIO()
    call_command("spectacular", "--validate", "--fail-on-warn", stdout=out)
    return yaml.safe_load(out.getvalue())


def test_every_operation_documents_its_problems(schema: Any) -> None:
    for path, operations in schema["paths"].items():
        for method in METHODS & operations.keys():
            answers = operations[method]["responses"]
            assert "application/problem+json" in answers["default"]["content"], (method, path)


def test_no_operation_is_described_by_what_a_base_class_says_of_itself(schema: Any) -> None:
    said = inspect.cleandoc(Resource.__doc__ or "")
    for path, operations in schema["paths"].items():
        for method in METHODS & operations.keys():
            assert operations[method].get("description") != said, (method, path)


def test_the_worker_protocol_takes_worker_tokens_and_nothing_else(schema: Any) -> None:
    for path, operations in schema["paths"].items():
        for method in METHODS & operations.keys():
            schemes = {name for item in operations[method].get("security", []) for name in item}
            if operations[method]["tags"] == ["worker protocol"]:
                assert schemes == {"workerToken"}, path
            else:
                assert "workerToken" not in schemes, path


def test_the_schema_and_its_browser_are_served_without_other_hosts(db: None) -> None:
    client = APIClient()
    assert client.get("/api/schema/").status_code == 200
    page = client.get("/api/docs/").content.decode()
    assert "swagger-ui" in page
    assert "http://" not in page.replace("http://testserver", "")
    assert "https://" not in page


def test_the_schema_is_made_once_and_has_an_etag(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    client, kinds = APIClient(), ("application/vnd.oai.openapi", "application/vnd.oai.openapi+json")
    first = [client.get("/api/schema/", HTTP_ACCEPT=kind) for kind in kinds]
    assert yaml.safe_load(first[0].content) == orjson.loads(first[1].content)
    assert first[0]["ETag"] != first[1]["ETag"]
    # Whoever made it again would fail.
    monkeypatch.setattr(SpectacularAPIView, "generator_class", None)
    for kind, answer in zip(kinds, first, strict=True):
        assert answer["Content-Type"].startswith(kind)
        assert "Accept" in answer["Vary"]
        assert client.get("/api/schema/", HTTP_ACCEPT=kind).content == answer.content
        same = client.get(
            "/api/schema/", HTTP_ACCEPT=kind, headers={"If-None-Match": answer["ETag"]}
        )
        assert (same.status_code, same.content) == (304, b"")
