"""What lists may be asked for beside a page: filters, orders and counts, each declared once, with
what it means, what it takes and what it does to the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import Q, QuerySet
from django.utils.dateparse import parse_datetime
from django.utils.timezone import get_current_timezone, is_naive, make_aware
from drf_spectacular.utils import OpenApiParameter

from api.openapi import NO_NUL
from tagmill.errors import Invalid

MAX_TEXT = 256
TEXT = {"type": "string", "maxLength": MAX_TEXT, "pattern": NO_NUL}
FLAGS = {"true": True, "false": False}


@dataclass(frozen=True)
class Filter:
    """`read` makes a value of the text, or raises Invalid; `apply` is None where the view does it
    itself, which finds the value in `asked`."""

    name: str
    description: str
    schema: Mapping[str, Any]
    read: Callable[[str], Any]
    apply: Callable[[Any, Any], Any] | None = None

    def parameter(self) -> OpenApiParameter:
        return OpenApiParameter(self.name, dict(self.schema), description=self.description)


Lookup = str | Callable[[Any], Q] | None


def _applied(lookup: Lookup) -> Callable[[Any, Any], Any] | None:
    if lookup is None:
        return None
    if isinstance(lookup, str):
        return lambda rows, value: rows.filter(**{lookup: value})
    return lambda rows, value: rows.filter(lookup(value))


def text(name: str, lookup: Lookup, description: str) -> Filter:
    """One line of text. `lookup`: as Django writes it, or what makes a condition of the value."""

    def read(value: str) -> str:
        if len(value) > MAX_TEXT or "\0" in value:
            raise Invalid(f"{name} has at most {MAX_TEXT} characters, none of them NUL", field=name)
        return value

    return Filter(name, description, TEXT, read, _applied(lookup))


def choice(name: str, values: Sequence[str], lookup: Lookup, description: str) -> Filter:
    def read(value: str) -> str:
        if value not in values:
            raise Invalid(f"{name} must be one of {', '.join(values)}", field=name)
        return value

    schema = {"type": "string", "enum": list(values)}
    return Filter(name, description, schema, read, _applied(lookup))


def flag(name: str, lookup: Lookup, description: str) -> Filter:
    def read(value: str) -> bool:
        if value not in FLAGS:
            raise Invalid(f"{name} must be true or false", field=name)
        return FLAGS[value]

    return Filter(name, description, {"type": "boolean"}, read, _applied(lookup))


def time(name: str, lookup: Lookup, description: str) -> Filter:
    def read(value: str) -> datetime:
        try:
            found = parse_datetime(value)
            if found is not None:
                # PostgreSQL knows no zone as far from UTC as ISO 8601 allows.
                aware = make_aware(found, get_current_timezone()) if is_naive(found) else found
                return aware.astimezone(UTC)
        except (ValueError, OverflowError):
            pass
        raise Invalid(f"{name} must be a time as 2026-01-31T12:00:00Z", field=name)

    schema = {"type": "string", "format": "date-time"}
    return Filter(name, description, schema, read, _applied(lookup))


def times(field: str) -> tuple[Filter, Filter]:
    """`since` and `until`."""
    return (
        time("since", f"{field}__gte", "Not before this time."),
        time("until", f"{field}__lt", "Before this time."),
    )


def order(*orders: str) -> Filter:
    """In which order, each named as the member of the answer that it goes by; the first is the one
    without it. A list declares the column of each by `orders`."""
    return choice("order", orders, None, f"`-` is descending. Without it: `{orders[0]}`.")


COUNT = flag("count", None, "`true`: `count` in the answer says how many there are on all pages.")


def asked(filters: Sequence[Filter], given: Mapping[str, str]) -> dict[str, Any]:
    """The values by the names of the filters that were sent. Raises Invalid."""
    return {each.name: each.read(given[each.name]) for each in filters if each.name in given}


def filtered(filters: Sequence[Filter], values: Mapping[str, Any], rows: QuerySet[Any]) -> Any:
    """The rows that all filters sent leave."""
    for each in filters:
        if each.apply is not None and each.name in values:
            rows = each.apply(rows, values[each.name])
    return rows
