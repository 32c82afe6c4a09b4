"""What drf-spectacular adds to the description of Django's views: the native endpoints, and the
messages of the worker protocol."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec

from api import codes
from api.server import (
    batches,
    completion,
    dictionaries,
    documents,
    events,
    expression_sets,
    feed,
    health,
    images,
    imports,
    lease,
    session,
)
from tagmill_wire import messages

OPERATIONS = (
    lease.OPERATION,
    completion.OPERATION,
    batches.OPERATION,
    expression_sets.OPERATION,
    dictionaries.OPERATION,
    images.GET,
    images.PUT,
    *(kind.operation for kind in imports.KINDS),
    documents.OPERATION,
    events.REBUILDS.operation,
    feed.OPERATION,
    session.OPERATION,
    events.PREVIEWS.operation,
    health.ALIVE,
    health.READY,
    health.METRICS,
)
MESSAGES = [
    kind
    for _, kind in inspect.getmembers(messages, inspect.isclass)
    if issubclass(kind, messages.Message) and kind is not messages.Message
]


def add_native(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """A hook of drf-spectacular's."""
    paths, schemas = result["paths"], result["components"]["schemas"]
    place = "#/components/schemas/{name}"
    found = msgspec.json.schema_components(MESSAGES, ref_template=place)[1]
    if twice := schemas.keys() & found.keys():
        raise ValueError(f"serializers and messages have the same names: {sorted(twice)}")
    schemas.update(found)
    for operation in OPERATIONS:
        methods = paths.setdefault(operation.path, {})
        if operation.method in methods:
            raise ValueError(f"{operation.method} {operation.path} is described twice")
        methods[operation.method] = operation.described()
    answers = [
        answer
        for methods in paths.values()
        for described in methods.values()
        for answer in described["responses"].values()
    ]
    schemas.update(codes.schemas(answers))
    result["paths"] = dict(sorted(paths.items()))
    result["components"]["schemas"] = dict(sorted(schemas.items()))
    return result
