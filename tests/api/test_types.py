"""Values of the wrong JSON type are refused, whichever body they are in."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework import serializers
from rest_framework.test import APIClient

import api.urls
from api.rest.base import JSON_TYPES, Strict, mistyped
from tests.support.http import problem

SAMPLES: tuple[Any, ...] = ("text", "1", "true", 0, 1, 2.5, True, False, [], ["x"], {}, {"a": "b"})


def bodies(kind: type[Strict] = Strict) -> set[type[Strict]]:
    assert api.urls.V1
    found = {kind} if kind is not Strict else set()
    return found.union(*(bodies(each) for each in kind.__subclasses__()))


def test_every_field_of_every_body_takes_its_own_type_and_no_other() -> None:
    seen = 0
    for kind in bodies():
        for name, field in kind().fields.items():
            if isinstance(field, Strict):
                continue
            types = next(types for known, types, _ in JSON_TYPES if isinstance(field, known))
            for value in SAMPLES:
                errors = mistyped(field, value)
                assert bool(errors) == (type(value) not in types), (kind.__name__, name, value)
                seen += 1
    assert seen > 200


def test_what_a_list_or_an_object_holds_is_of_its_type_as_well() -> None:
    words = serializers.ListField(child=serializers.CharField())
    assert mistyped(words, ["a", 1, None, True]) == {
        1: ["must be a string"],
        3: ["must be a string"],
    }
    by_name = serializers.DictField(child=serializers.CharField())
    assert mistyped(by_name, {"a": "b", "c": 1}) == {"c": ["must be a string"]}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("clusters/", {"name": 0}, "name"),
        ("tags/", {"name": "a", "definition": 12.5}, "definition"),
        ("tags/", {"name": "a", "namespaces": {"x": 1}}, "namespaces.x"),
        ("rebuilds/", {"all": "yes"}, "all"),
        ("rebuilds/", {"all": 1}, "all"),
        ("worker-tokens/", {"name": "a", "all_clusters": "true"}, "all_clusters"),
        ("worker-tokens/", {"name": "a", "clusters": ["b", 1]}, "clusters.1"),
        ("user-tokens/", {"user": "ann", "role": "viewer", "days": "1"}, "days"),
        ("user-tokens/", {"user": "ann", "role": "viewer", "days": True}, "days"),
        ("nodes/", {"system_id": 12}, "system_id"),
        ("nodes/", {"system_id": "a", "probes": {"lshw": 1}}, "probes.lshw"),
    ],
)
def test_a_value_of_another_type_is_refused(
    admin: APIClient, path: str, body: dict[str, Any], field: str
) -> None:
    answer = admin.post(f"/api/v1/{path}", body, format="json")
    found = problem(answer, 400, "invalid")
    assert found["field"] == field
    assert found["detail"].startswith("must be ")


def test_options_name_the_methods_and_describe_nothing(viewer: APIClient) -> None:
    answer = viewer.options("/api/v1/tags/")
    assert (answer.status_code, answer.content) == (204, b"")
    assert {"GET", "POST"} <= set(answer["Allow"].split(", "))


def test_a_whole_number_may_be_written_with_a_point() -> None:
    number = serializers.IntegerField()
    assert mistyped(number, 2.0) is None and number.run_validation(2.0) == 2
    assert mistyped(number, 2.5) == mistyped(number, "2") == ["must be a whole number"]
