"""The process that explains one definition on one node's document, and ends.

A definition can take for ever and libxml2 cannot be interrupted: so the server never evaluates one
itself. JSON on standard input, `{"text", "namespaces", "probes", "seconds", "bytes"}`; on standard
output `{"explanation": {...}, "kernel": {...}}`, or `{"error": sentence}`. Imports no Django.
"""

from __future__ import annotations

import math
import resource
import sys
import time
from typing import Any

import orjson

from tagmill_expressions import definition, documents, explain
from tagmill_expressions.errors import ExpressionError

# Of the time allowed: the whole is always evaluated, its parts only until then.
PARTS_SHARE = 0.5


def main() -> int:
    asked = orjson.loads(sys.stdin.buffer.read())
    seconds = asked["seconds"]
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds) + 1))
    resource.setrlimit(resource.RLIMIT_AS, (asked["bytes"], asked["bytes"]))
    checked = definition.check(asked["text"], asked["namespaces"])
    answer: dict[str, Any] = {"kernel": kernel(checked.text, checked.namespaces)}
    try:
        tree = documents.compose(asked["probes"])
        deadline = time.monotonic() + PARTS_SHARE * seconds
        answer["explanation"] = explain.explain(checked, tree, deadline=deadline).to_dict()
    except (ExpressionError, MemoryError) as error:
        answer = {"error": str(error) or "there is not enough memory"}
    sys.stdout.buffer.write(orjson.dumps(answer))
    return 0


def kernel(text: str, namespaces: dict[str, str]) -> dict[str, Any]:
    """What the kernel says to the expression. `compiles`: None where it is not installed."""
    try:
        import tagmill_kernel
    except ImportError:
        return {"compiles": None, "plan": None, "refused": None}
    try:
        plan = tagmill_kernel.Expression(text, namespaces).explain
    except tagmill_kernel.KernelRefused as error:
        return {"compiles": False, "plan": None, "refused": str(error.args[0])}
    return {"compiles": True, "plan": plan, "refused": None}


if __name__ == "__main__":
    sys.exit(main())
