"""Definitions as users write them, and the immutable expressions that stand for them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import NamedTuple

import orjson
from psycopg.types.json import Jsonb

from tagmill import locks, sql
from tagmill.config import load
from tagmill.errors import InvalidDefinition, TooLarge
from tagmill.locks import Lock
from tagmill.matches.models import Expression
from tagmill_expressions import definition
from tagmill_expressions.errors import DefinitionError
from tagmill_expressions.lint import caret

# Definitions that are kept parsed: what checks one, stores it and warns of it follow one another.
# The tree of the longest definition takes some 2 MB.
MAX_PARSED = 16


def parsed(text: str, namespaces: Mapping[str, str]) -> definition.Checked:
    """The definition, parsed once for all who ask soon. Raises DefinitionError."""
    return _parsed(text, tuple(sorted(namespaces.items())))


@lru_cache(maxsize=MAX_PARSED)
def _parsed(text: str, namespaces: tuple[tuple[str, str], ...]) -> definition.Checked:
    return definition.check(text, dict(namespaces))


def check(text: str, namespaces: Mapping[str, str]) -> None:
    """Raises InvalidDefinition, with the 1-based `column` and a `caret` below it, and TooLarge."""
    limit = load().definition_bytes
    if len(text.encode()) > limit:
        raise TooLarge(
            f"the definition is longer than {limit} bytes (TAGMILL_DEFINITION_BYTES)",
            limit=limit,
            field="definition",
        )
    try:
        parsed(text, namespaces)
    except DefinitionError as error:
        shown = error.column and caret(text, error.column, error.message)
        raise InvalidDefinition(
            str(error),
            column=error.column,
            caret=shown,
            field="definition",
            rewrite=error.rewrite,
        ) from None


class _Definition(NamedTuple):
    expression: int
    text: str
    namespaces: str


def definitions(wanted: Collection[int]) -> dict[int, tuple[str, dict[str, str]]]:
    """The text and the namespaces of those of these expressions that exist."""
    values = {"expressions": sorted(wanted)}
    found = sql.bound(_Definition, __file__, "definitions", values) if wanted else []
    return {row.expression: (row.text, orjson.loads(row.namespaces)) for row in found}


def expression_for(text: str, namespaces: Mapping[str, str]) -> Expression:
    """The expression with this text and these namespaces: the one that is there, or a new one.

    Call it in the transaction that will refer to it. Raises what `check` raises.
    """
    check(text, namespaces)
    values = {
        "text": text,
        "namespaces": Jsonb(dict(namespaces)),
        "digest": digest(text, namespaces),
    }
    locks.taking(Lock.EXPRESSION)
    (found,) = Expression.objects.raw(sql.query(__file__, "touch_expression"), values)
    return found


def digest(text: str, namespaces: Mapping[str, str]) -> bytes:
    """What is unique of an expression."""
    canonical = orjson.dumps([text, dict(namespaces)], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(canonical).digest()
