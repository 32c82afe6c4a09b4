"""The process that explains one definition on one node's document, and ends.

A definition can take for ever and libxml2 cannot be interrupted: so the server never evaluates one
itself. JSON on standard input, `{"text", "namespaces", "probes", "seconds", "bytes",
"answer_bytes"}`; on standard output, a file, `{"explanation": {...}, "kernel": {...}}`, or
`{"error": sentence}`. Imports no Django.
"""

from __future__ import annotations

import math
import resource
import sys
import time
from typing import Any

import orjson

from tagmill_expressions import definition, documents, explain
from tagmill_expressions.errors import EvaluationError, ExpressionError

# The share of the time allowed after which no part is evaluated any more; the whole always is.
PARTS_SHARE = 0.5


def main() -> int:
    asked = orjson.loads(sys.stdin.buffer.read())
    seconds = asked["seconds"]
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds) + 1))
    resource.setrlimit(resource.RLIMIT_AS, (asked["bytes"], asked["bytes"]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (asked["answer_bytes"], asked["answer_bytes"]))
    try:
        answer = explain_json(asked)
    except (ExpressionError, MemoryError) as error:
        answer = orjson.dumps({"error": str(error) or "there is not enough memory"})
    sys.stdout.buffer.write(answer)
    return 0


def explain_json(asked: dict[str, Any]) -> bytes:
    """What is printed. Raises ExpressionError and MemoryError."""
    deadline = time.monotonic() + PARTS_SHARE * asked["seconds"]
    checked = definition.check(asked["text"], asked["namespaces"])
    answer: dict[str, Any] = {"kernel": kernel(checked.text, checked.namespaces)}
    tree = documents.compose(asked["probes"])
    explanation = explain.explain(checked, tree, deadline=deadline).to_dict()
    answer["explanation"] = explanation
    found = orjson.dumps(answer)
    if len(found) > asked["answer_bytes"]:
        # The whole has its verdict and its nodes; what is left out are the parts.
        answer["explanation"] = {**explanation, "operands": [], "truncated": True}
        found = orjson.dumps(answer)
    if len(found) > asked["answer_bytes"]:
        raise EvaluationError("what the definition finds on this node is too long to be shown")
    return found


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
