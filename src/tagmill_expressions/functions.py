"""The core function library of XPath 1.0, section 4."""

from __future__ import annotations

from typing import Final

from tagmill_expressions.syntax import Signature, Type

_ANY: Final = "object"


def _function(type: Type, *arguments: Type | str, least: int | None = None) -> Signature:
    count = len(arguments)
    return Signature(arguments, count if least is None else least, count, type)  # type: ignore[arg-type]


FUNCTIONS: Final[dict[str, Signature]] = {
    "last": _function("number"),
    "position": _function("number"),
    "count": _function("number", "node-set"),
    "id": _function("node-set", _ANY),
    "local-name": _function("string", "node-set", least=0),
    "namespace-uri": _function("string", "node-set", least=0),
    "name": _function("string", "node-set", least=0),
    "string": _function("string", _ANY, least=0),
    "concat": Signature(("string", "string", "string"), 2, None, "string"),
    "starts-with": _function("boolean", "string", "string"),
    "contains": _function("boolean", "string", "string"),
    "substring-before": _function("string", "string", "string"),
    "substring-after": _function("string", "string", "string"),
    "substring": _function("string", "string", "number", "number", least=2),
    "string-length": _function("number", "string", least=0),
    "normalize-space": _function("string", "string", least=0),
    "translate": _function("string", "string", "string", "string"),
    "boolean": _function("boolean", _ANY),
    "not": _function("boolean", _ANY),
    "true": _function("boolean"),
    "false": _function("boolean"),
    "lang": _function("boolean", "string"),
    "number": _function("number", _ANY, least=0),
    "sum": _function("number", "node-set"),
    "floor": _function("number", "number"),
    "ceiling": _function("number", "number"),
    "round": _function("number", "number"),
}
