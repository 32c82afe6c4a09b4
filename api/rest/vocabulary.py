"""/api/v1/vocabulary: what the fleet's documents contain, to write definitions with."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import pagination
from api.openapi import Says
from api.rest.base import Resource
from tagmill.errors import Invalid
from tagmill.fleet import vocabularies
from tagmill.fleet.models import Vocabulary
from tagmill_expressions import words

MAX_TEXT = 512
LIMIT = {"type": "integer", "minimum": 1, "maximum": pagination.MAX_LIMIT}


class WordOut(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(["element", "attribute", "value"])
    name = serializers.CharField()
    documents = serializers.IntegerField(
        allow_null=True, help_text="At least so many have it. Null for an attribute."
    )


class WordsOut(serializers.Serializer[Any]):
    results = WordOut(many=True, help_text="The most frequent first.")
    truncated = serializers.BooleanField(help_text="There are more: ask for a longer `prefix`.")
    complete = serializers.BooleanField(
        help_text="False where words are missing: values that are too many or too long to be kept, "
        "or a partition whose words are not known yet."
    )
    documents = serializers.IntegerField(
        allow_null=True, help_text="Learnt from so many. Null: not every partition is known yet."
    )
    behind = serializers.IntegerField(help_text="Partitions with changes not learnt yet.")


EXAMPLE = OpenApiExample(
    "under=node/@class&prefix=di",
    value={
        "results": [
            {"kind": "value", "name": "disk", "documents": 9120},
            {"kind": "value", "name": "display", "documents": 1300},
        ],
        "truncated": False,
        "complete": True,
        "documents": 10000,
        "behind": 0,
    },
    response_only=True,
)


class Words(Resource):
    says = {"GET": Says(errors=("invalid",))}
    parameters = frozenset({"prefix", "under", "limit"})
    serializer_class = WordsOut
    queryset = Vocabulary.objects.all()

    @extend_schema(
        operation_id="vocabulary",
        parameters=[
            OpenApiParameter("prefix", str, description="Words that begin so, in any case."),
            OpenApiParameter(
                "under",
                str,
                description="`node`: children and attributes of elements of that name, `*` of any; "
                "`node/@class`: values of an attribute; `vendor/text()`: texts. Without it, all "
                "elements.",
            ),
            OpenApiParameter("limit", LIMIT, description="Words in the answer."),
        ],
        responses=WordsOut,
        examples=[EXAMPLE],
    )
    def get(self, request: Request) -> Response:
        """List the words of the fleet's documents

        The names of elements and attributes, and the values, the most frequent first."""
        asked = {name: request.query_params.get(name, "") for name in ("under", "prefix")}
        for name, text in asked.items():
            if len(text) > MAX_TEXT:
                raise Invalid(f"{name} has at most {MAX_TEXT} characters", field=name)
        limit = pagination.limit_of(request.query_params)
        known = vocabularies.fleet()
        found = words.Words([], truncated=False, complete=False)
        if known.vocabulary is not None:
            found = words.beginning(known.vocabulary, asked["under"], asked["prefix"], limit)
        return Response(
            {
                "results": [word._asdict() for word in found.words],
                "truncated": found.truncated,
                "complete": found.complete,
                "documents": None if known.vocabulary is None else known.vocabulary.documents,
                "behind": known.behind,
            }
        )
