"""/api/v1/definitions/ and /api/v1/tags/{name}/explain: what a definition says, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import limits
from api.openapi import Says
from api.rest.base import Resource
from api.rest.tags import DefinitionIn, WarningOut
from api.roles import Role
from tagmill.errors import Invalid, InvalidDefinition
from tagmill.tags import explaining, linting
from tagmill.tags.models import Tag
from tagmill_expressions.lint import Warning

NODE = {"type": "string", "minLength": 1}


class ExplainIn(DefinitionIn):
    node = serializers.CharField(max_length=64, help_text="A system_id.")


class VocabularyOut(serializers.Serializer[Any]):
    documents = serializers.IntegerField(
        allow_null=True,
        help_text="It was learnt from so many. Null: not every partition's is known yet, and the "
        "definition is judged by its form alone.",
    )
    behind = serializers.IntegerField(help_text="Partitions with changes not learnt yet.")


class LintOut(serializers.Serializer[Any]):
    warnings = WarningOut(many=True)
    vocabulary = VocabularyOut()


class WrongOut(serializers.Serializer[Any]):
    message = serializers.CharField()
    column = serializers.IntegerField(
        allow_null=True, help_text="From 1, in characters; null where it is no place of the text."
    )
    rewrite = serializers.CharField(allow_null=True, help_text="Where it is sure what was meant.")


class CheckOut(LintOut):
    error = WrongOut(allow_null=True, help_text="Why it does not parse. No warnings then.")


class HitOut(serializers.Serializer[Any]):
    path = serializers.CharField()
    line = serializers.IntegerField(allow_null=True)
    text = serializers.CharField()
    about = serializers.CharField(help_text="`id`, `class` and `product` of an element.")


class MissingOut(serializers.Serializer[Any]):
    sentence = serializers.CharField()
    longest = serializers.CharField(help_text="The longest beginning that found something.")
    total = serializers.IntegerField(help_text="How many it found.")
    failed = serializers.CharField(help_text="The step or condition after it.")
    column = serializers.IntegerField()
    instead = serializers.ListField(child=serializers.CharField(), help_text="What is there.")


class ExplanationOut(serializers.Serializer[Any]):
    kind = serializers.CharField()
    text = serializers.CharField()
    column = serializers.IntegerField()
    end_column = serializers.IntegerField()
    type = serializers.CharField()
    verdict = serializers.BooleanField()
    # Null is among the values: a schema of its own for it would match twice.
    value = serializers.JSONField(
        help_text="A number, a text of at most 200 characters, true or false; null for nodes."
    )
    length = serializers.IntegerField(
        allow_null=True, help_text="The length of the whole text; null for anything else."
    )
    total = serializers.IntegerField(allow_null=True)
    hits = HitOut(many=True)
    missing = MissingOut(allow_null=True)
    operands = serializers.ListField(
        child=serializers.JSONField(), help_text="Explanations, like this one."
    )
    truncated = serializers.BooleanField()


class EvaluatorOut(serializers.Serializer[Any]):
    name = serializers.CharField(allow_null=True)
    reason = serializers.CharField()
    plan = serializers.CharField(allow_null=True)


class LastEvaluation(serializers.Serializer[Any]):
    member = serializers.BooleanField()
    fresh = serializers.BooleanField(help_text="Nothing there has changed since.")
    rev = serializers.IntegerField()
    evaluated_at = serializers.DateTimeField()


class NodeName(serializers.Serializer[Any]):
    system_id = serializers.CharField()
    hostname = serializers.CharField()


class ExplainOut(serializers.Serializer[Any]):
    node = NodeName()
    definition = serializers.CharField()
    namespaces = serializers.DictField(child=serializers.CharField())
    verdict = serializers.BooleanField(
        help_text="Whether it holds on the node's documents as they are now."
    )
    explanation = ExplanationOut(
        allow_null=True, help_text="Null: the node has no documents, and matches nothing."
    )
    evaluator = EvaluatorOut()
    stored = LastEvaluation(allow_null=True, help_text="The last evaluation. Null: there was none.")


LINT_EXAMPLES = [
    OpenApiExample(
        "Quotes are missing",
        value={"definition": "//node[@class=display]"},
        request_only=True,
    ),
    OpenApiExample(
        "A warning with its rewrite",
        value={
            "warnings": [
                {
                    "code": "bare_name_for_string",
                    "message": "display without quotes is an element's name: write 'display'",
                    "column": 15,
                    "end_column": 21,
                    "rewrite": "//node[@class='display']",
                }
            ],
            "vocabulary": {"documents": 1000, "behind": 0},
        },
        response_only=True,
    ),
]
EXPLAIN_EXAMPLES = [
    OpenApiExample(
        "Why is it out?",
        value={"definition": "//node[@id='cpu']", "node": "4y3h7n"},
        request_only=True,
    ),
    OpenApiExample(
        "Its processors are cpu:0 and cpu:1",
        value={
            "node": {"system_id": "4y3h7n", "hostname": "rack1"},
            "definition": "//node[@id='cpu']",
            "namespaces": {},
            "verdict": False,
            "explanation": {
                "kind": "path",
                "text": "//node[@id='cpu']",
                "column": 1,
                "end_column": 17,
                "type": "node-set",
                "verdict": False,
                "value": None,
                "total": 0,
                "hits": [],
                "missing": {
                    "sentence": "//node[@id='cpu'] matched 0; ids that exist here: cpu:0, cpu:1",
                    "longest": "//node",
                    "total": 34,
                    "failed": "@id='cpu'",
                    "column": 8,
                    "instead": ["cpu:0", "cpu:1"],
                },
                "operands": [],
                "truncated": False,
            },
            "evaluator": {"name": "kernel", "reason": "the kernel compiles all of it", "plan": ""},
            "stored": {
                "member": False,
                "fresh": True,
                "rev": 12,
                "evaluated_at": "2026-01-01T12:00:00Z",
            },
        },
        response_only=True,
    ),
]


def warnings_of(found: Sequence[Warning]) -> list[dict[str, Any]]:
    return [warning.to_dict() for warning in found]


def explanation_body(found: explaining.NodeExplanation) -> Mapping[str, Any]:
    stored = found.stored
    return {
        "node": {"system_id": found.node.system_id, "hostname": found.node.hostname},
        "definition": found.definition,
        "namespaces": found.namespaces,
        "verdict": found.verdict,
        "explanation": found.explanation,
        "evaluator": {
            "name": found.evaluator.name,
            "reason": found.evaluator.reason,
            "plan": found.evaluator.plan,
        },
        "stored": stored
        and {
            "member": stored.is_member,
            "fresh": stored.is_fresh,
            "rev": stored.rev,
            "evaluated_at": stored.evaluated_at,
        },
    }


class DefinitionCall(Resource):
    """What is asked about a definition that is in the body."""

    roles = {"POST": Role.VIEWER}
    body_limit = limits.DEFINITION
    queryset = Tag.objects.all()


class LintDefinition(DefinitionCall):
    says = {"POST": Says(errors=("invalid_definition",))}
    serializer_class = LintOut

    @extend_schema(
        operation_id="definitions_lint",
        request=DefinitionIn,
        responses={200: LintOut},
        examples=LINT_EXAMPLES,
    )
    def post(self, request: Request) -> Response:
        """Look for mistakes in a definition

        What it says other than its author may have meant. Warnings never block."""
        given = self.given(DefinitionIn)
        return Response(_lint_body(linting.lint(given["definition"], given["namespaces"])))


class CheckDefinition(DefinitionCall):
    serializer_class = CheckOut

    @extend_schema(
        operation_id="definitions_check", request=DefinitionIn, responses={200: CheckOut}
    )
    def post(self, request: Request) -> Response:
        """Check a definition while somebody types

        As lint, but what does not parse is no error of the request, but the
        `error` of the answer."""
        given = self.given(DefinitionIn)
        try:
            found = linting.lint(given["definition"], given["namespaces"])
        except InvalidDefinition as wrong:
            none = linting.Lint((), None, 0)
            error = {name: wrong.extra.get(name) for name in ("column", "rewrite")}
            return Response({**_lint_body(none), "error": {"message": wrong.detail, **error}})
        return Response({**_lint_body(found), "error": None})


def _lint_body(found: linting.Lint) -> dict[str, Any]:
    vocabulary = {"documents": found.documents, "behind": found.behind}
    return {"warnings": warnings_of(found.warnings), "vocabulary": vocabulary}


class ExplainDefinition(DefinitionCall):
    says = {
        "POST": Says(
            errors=("not_found", "invalid_definition", "document_damaged", "too_expensive", "busy")
        )
    }
    serializer_class = ExplainOut

    @extend_schema(
        operation_id="definitions_explain",
        request=ExplainIn,
        responses={200: ExplainOut},
        examples=EXPLAIN_EXAMPLES,
    )
    def post(self, request: Request) -> Response:
        """Explain why a node matches a definition, or not"""
        given = self.given(ExplainIn)
        found = explaining.of_definition(given["definition"], given["namespaces"], given["node"])
        return Response(explanation_body(found))


class ExplainTag(Resource):
    says = {
        "GET": Says(errors=("invalid", "manual_tag", "document_damaged", "too_expensive", "busy"))
    }
    parameters = frozenset({"node"})
    serializer_class = ExplainOut
    queryset = Tag.objects.all()

    @extend_schema(
        operation_id="tags_explain",
        parameters=[OpenApiParameter("node", NODE, required=True, description="A system_id.")],
        responses={200: ExplainOut},
        examples=EXPLAIN_EXAMPLES[1:],
    )
    def get(self, request: Request, name: str) -> Response:
        """Explain why a node is in a tag, or out

        By the published definition, or the pending one
        where none is published yet."""
        node = request.query_params.get("node", "")
        if not node:
            raise Invalid("say which: ?node=SYSTEM_ID", field="node")
        return Response(explanation_body(explaining.of_tag(name, node)))
