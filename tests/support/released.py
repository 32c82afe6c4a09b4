"""What of an OpenAPI description breaks clients of an older one, by the policy of docs/api.md: what
was there stays, and is no stricter; more may come.

A schema of a request may take more than before, never less; one of an answer may say more, and what
it always said it always says.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

METHODS = ("get", "put", "post", "delete", "patch", "head", "options")
# A request that kept to the old bound keeps to the new one, if it is no lower, or no higher.
NO_LOWER = ("maximum", "maxLength", "maxItems", "maxProperties", "exclusiveMaximum")
NO_HIGHER = ("minimum", "minLength", "minItems", "minProperties", "exclusiveMinimum")
PARTS = ("allOf", "anyOf", "oneOf")


class Comparison:
    def __init__(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        self._old, self._new = old, new
        self._seen: set[tuple[str, str, bool]] = set()

    def breaks(self) -> Iterator[str]:
        for path, methods in self._old["paths"].items():
            for method in METHODS:
                if method in methods:
                    now = self._new["paths"].get(path, {}).get(method)
                    for what in self._operation(methods[method], now):
                        yield f"{method.upper()} {path}: {what}"

    def _operation(self, old: Mapping[str, Any], new: Mapping[str, Any] | None) -> Iterator[str]:
        if new is None:
            yield "is gone"
            return
        if old["operationId"] != new["operationId"]:
            yield f"is called {new['operationId']}, not {old['operationId']}"
        yield from self._parameters(_parameters(old), _parameters(new))
        yield from self._request(old.get("requestBody"), new.get("requestBody"))
        for status, answer in old["responses"].items():
            if status.startswith("2"):
                yield from self._answer(status, answer, new["responses"].get(status))
        if not _schemes(old) <= _schemes(new):
            yield "takes no more what clients authenticate with"

    def _parameters(self, old: Mapping[Any, Any], new: Mapping[Any, Any]) -> Iterator[str]:
        for key, parameter in old.items():
            if key not in new:
                yield f"parameter {key[1]} is gone"
            else:
                schemas = parameter.get("schema", {}), new[key].get("schema", {})
                yield from self._schema(*schemas, f"parameter {key[1]}", is_sent=True)
        for key, parameter in new.items():
            was = old.get(key, {}).get("required", False)
            if parameter.get("required", False) and not was:
                yield f"parameter {key[1]} is required"

    def _request(self, old: Any, new: Any) -> Iterator[str]:
        if old is None:
            if new is not None and new.get("required"):
                yield "a body is required"
            return
        if new is None:
            yield "takes no body"
            return
        yield from self._contents(old, new, "body", is_sent=True)

    def _answer(self, status: str, old: Any, new: Any) -> Iterator[str]:
        if new is None:
            yield f"never answers with {status}"
            return
        for name in old.get("headers", {}).keys() - new.get("headers", {}).keys():
            yield f"{status} has no header {name}"
        yield from self._contents(old, new, status, is_sent=False)

    def _contents(self, old: Any, new: Any, place: str, *, is_sent: bool) -> Iterator[str]:
        now = new.get("content", {})
        for kind, media in old.get("content", {}).items():
            if kind not in now:
                yield f"{place} is never {kind}"
            else:
                schemas = media.get("schema", {}), now[kind].get("schema", {})
                yield from self._schema(*schemas, place, is_sent=is_sent)

    def _schema(self, old: Any, new: Any, place: str, *, is_sent: bool) -> Iterator[str]:
        if "$ref" in old and "$ref" in new:
            pair = (old["$ref"], new["$ref"], is_sent)
            if pair in self._seen:
                return
            self._seen.add(pair)
        old, new = _resolved(self._old, old), _resolved(self._new, new)
        yield from _values(old, new, place, is_sent=is_sent)
        yield from self._fields(old, new, place, is_sent=is_sent)
        if "items" in old and "items" in new:
            yield from self._schema(old["items"], new["items"], f"{place}[]", is_sent=is_sent)
        for part in PARTS:
            befores, afters = old.get(part, []), new.get(part, [])
            if len(befores) > len(afters):
                yield f"{place}: {part} has fewer"
            for before, after in zip(befores, afters, strict=False):
                yield from self._schema(before, after, place, is_sent=is_sent)

    def _fields(self, old: Any, new: Any, place: str, *, is_sent: bool) -> Iterator[str]:
        before, after = old.get("properties", {}), new.get("properties", {})
        for name in before:
            if name not in after:
                yield f"{place}.{name} is gone"
            else:
                inner = f"{place}.{name}"
                yield from self._schema(before[name], after[name], inner, is_sent=is_sent)
        required, now = set(old.get("required", ())), set(new.get("required", ()))
        for name in sorted(now - required if is_sent else required - now):
            yield f"{place}.{name} is {'required' if is_sent else 'not always there'}"
        closed, is_open = new.get("additionalProperties"), old.get("additionalProperties", True)
        if is_sent and before and closed is False and is_open is not False:
            yield f"{place} takes no other fields"


def _values(old: Any, new: Any, place: str, *, is_sent: bool) -> Iterator[str]:
    """What the values themselves may be."""
    before, after = _types(old), _types(new)
    wider, narrower = (after, before) if is_sent else (before, after)
    if wider and (not narrower or not narrower <= wider):
        yield f"{place} is {_named(after)}, not {_named(before)}"
    if not is_sent:
        return
    if "enum" in new and ("enum" not in old or not {*old["enum"]} <= {*new["enum"]}):
        yield f"{place} takes fewer values"
    if new.get("pattern") not in (None, old.get("pattern")):
        yield f"{place} has another pattern"
    for names, sign in ((NO_LOWER, 1), (NO_HIGHER, -1)):
        for name in names:
            if name in new and (name not in old or sign * new[name] < sign * old[name]):
                yield f"{place}: {name} is {new[name]}, not {old.get(name)}"


def _types(schema: Mapping[str, Any]) -> set[str]:
    found = schema.get("type", [])
    types = {found} if isinstance(found, str) else {*found}
    # Every whole number is a number.
    return types | {"integer"} if "number" in types else types


def _named(types: set[str]) -> str:
    return " or ".join(sorted(types)) or "anything"


def _parameters(operation: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    return {(each["in"], each["name"]): each for each in operation.get("parameters", ())}


def _schemes(operation: Mapping[str, Any]) -> set[str]:
    return {name for each in operation.get("security", ()) for name in each}


def _resolved(document: Mapping[str, Any], schema: Any) -> Any:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


# Texts for people may change at any time.
# The titles of alternatives are not among them: oasdiff, and clients, know these by their titles.
TEXTS = frozenset({"description", "summary", "example", "examples", "tags", "links"})


def reduced(document: Mapping[str, Any]) -> dict[str, Any]:
    """What of a description is compared: no texts, no problems, no schemas that nothing names."""
    paths = _without_texts(document["paths"])
    for methods in paths.values():
        for method in methods.keys() & METHODS:
            answers = methods[method]["responses"]
            methods[method]["responses"] = {
                status: answer for status, answer in answers.items() if status.startswith("2")
            }
    schemas = _without_texts(document["components"]["schemas"])
    named: dict[str, Any] = {}
    wanted = _names(paths)
    while wanted:
        name = wanted.pop()
        if name not in named:
            named[name] = schemas[name]
            wanted |= _names(schemas[name])
    components = {"schemas": dict(sorted(named.items()))}
    info = {"title": document["info"]["title"], "version": document["info"]["version"]}
    return {"openapi": document["openapi"], "info": info, "paths": paths, "components": components}


def _without_texts(value: Any, *, are_names: bool = False) -> Any:
    """`are_names`: the keys are names of ours, which may be called like a text."""
    if isinstance(value, list):
        return [_without_texts(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without_texts(each, are_names=key in {"properties", "schemas", "headers"})
        for key, each in value.items()
        if are_names or key not in TEXTS
    }


def _names(value: Any) -> set[str]:
    return set(re.findall(r"#/components/schemas/(\w+)", json.dumps(value)))


def main() -> None:
    """Read a description in JSON, and print what the next release is compared with."""
    print(json.dumps(reduced(json.load(sys.stdin)), indent=1))


if __name__ == "__main__":
    main()
