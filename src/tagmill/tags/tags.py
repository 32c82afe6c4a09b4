"""Tags: made, changed and deleted by people."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.db.models.functions import Now

from tagmill import locks
from tagmill.errors import AlreadyExists, DatabaseUnavailable, Invalid, KindChange, NotFound
from tagmill.matches.expressions import expression_for
from tagmill.matches.models import Expression
from tagmill.tags import conversion, rebuilds
from tagmill.tags.conversion import Kind
from tagmill.tags.models import TAG_NAME, Preview, Rebuild, Tag

# Somebody else changes the tag between our look at it and our lock. It takes that many
# coincidences in a row to give up.
ATTEMPTS = 8
CHANGEABLE = frozenset({"name", "comment", "kernel_opts", "definition", "namespaces"})


class _Overtaken(Exception):
    """The tag was changed before we had its lock: look again."""


def create(
    name: str,
    *,
    definition: str | None = None,
    namespaces: dict[str, str] | None = None,
    comment: str = "",
    kernel_opts: str = "",
    by: User | None = None,
    kind: Kind | None = None,
) -> Tag:
    """A tag whose definition is published once it is evaluated everywhere; without one, a tag that
    is assigned by hand. Raises AlreadyExists, Invalid, InvalidDefinition, TooLarge."""
    _check_name(name)
    _check_kind(kind, definition, "automatic" if definition else "manual")
    with transaction.atomic():
        if definition:
            locks.fleet()
            pending = expression_for(definition, namespaces or {})
            rebuilds.lock_tags(Q(name=name), [pending.id])
        elif namespaces:
            raise Invalid("a manual tag has no namespaces", field="namespaces")
        else:
            pending = None
        tag = _insert(
            Tag(name=name, comment=comment, kernel_opts=kernel_opts, pending_expression=pending)
        )
        if pending is not None:
            rebuilds.begin([tag.id], Rebuild.Reason.CREATED, by)
        return Tag.objects.select_related("expression", "pending_expression").get(id=tag.id)


def update(
    name: str,
    /,
    by: User | None = None,
    expects: Callable[[Tag], None] | None = None,
    kind: Kind | None = None,
    **changes: Any,
) -> Tag:
    """`changes`: name, comment, kernel_opts, definition, namespaces. A new definition is pending
    until it is evaluated everywhere; the published one again drops what is pending. `expects` sees
    the tag under its lock, and raises where it is not the one that was meant. `kind` asks for a tag
    of the other kind (see tagmill.tags.conversion), or says which it is.

    Raises NotFound, AlreadyExists, Invalid, InvalidDefinition, TooLarge, KindChange.
    """
    unknown = changes.keys() - CHANGEABLE
    if unknown:
        raise Invalid(f"unknown field {min(unknown)!r}", field=min(unknown))
    for _ in range(ATTEMPTS):
        with contextlib.suppress(_Overtaken), transaction.atomic():
            return _update(name, changes, by, expects, kind)
    raise DatabaseUnavailable("too many changes to the same tag at once: try again")


def _update(
    name: str,
    changes: dict[str, Any],
    by: User | None,
    expects: Callable[[Tag], None] | None,
    kind: Kind | None,
) -> Tag:
    locks.fleet()
    seen = Tag.objects.filter(name=name).first()
    becomes_manual = kind == "manual" and seen is not None and conversion.is_automatic(seen)
    if becomes_manual:
        conversion.hold_fleet()
    # An expression is locked before the tag that is to name it, and so the tag is read twice: what
    # it said before its lock may have been replaced since.
    before = _definition(seen, name, changes, kind)
    new = expression_for(*before) if before else None
    # Who has the new name, too: two tags that swap their names do not wait for each other.
    wanted = Q(name__in=[name, changes.get("name", name)])
    is_renamed = "name" in changes
    locked = rebuilds.lock_tags(wanted, [new.id] if new else [], to_delete=is_renamed)
    tag = next((item for item in locked if item.name == name), None)
    if tag is None or _definition(tag, name, changes, kind) != before:
        raise _Overtaken
    if expects is not None:
        expects(tag)
    _describe(tag, changes)
    if new is not None:
        conversion.check_automatic(tag, kind)
        _define(tag, new, by)
    elif kind == "manual" and conversion.is_automatic(tag):
        if not becomes_manual:
            raise _Overtaken
        conversion.make_manual(tag)
    return Tag.objects.select_related("expression", "pending_expression").get(id=tag.id)


def delete(name: str, expects: Callable[[Tag], None] | None = None) -> None:
    """`expects` as for `update`. Raises NotFound."""
    with transaction.atomic():
        found = locks.rows(Tag.objects.filter(name=name), to_delete=True)
        if not found:
            raise NotFound(f"there is no tag {name!r}")
        if expects is not None:
            expects(found[0])
        _delete(found)


def delete_all(names: Sequence[str]) -> None:
    """All of these that are there, at once: one after the other in one transaction, each would wait
    for a tag while it has the rebuilds of the one before."""
    with transaction.atomic():
        _delete(locks.rows(Tag.objects.filter(name__in=names), to_delete=True))


def _delete(locked: Sequence[Tag]) -> None:
    ids = [tag.id for tag in locked]
    locks.rows(Preview.objects.filter(compare_to__in=ids))
    rebuilds.lock_of(ids)
    Tag.objects.filter(id__in=ids).delete()
    rebuilds.finish_reached()


def _definition(
    tag: Tag | None, name: str, changes: dict[str, Any], kind: Kind | None
) -> tuple[str, dict[str, str]] | None:
    """The text and the namespaces that the changes ask for; None when they concern neither.

    Raises NotFound, Invalid, KindChange."""
    if tag is None:
        raise NotFound(f"there is no tag {name!r}")
    if kind == "manual":
        _check_kind(kind, changes.get("definition"), "manual")
        if changes.get("namespaces"):
            raise Invalid("a manual tag has no namespaces", field="namespaces")
        return None
    if kind == "automatic" and not conversion.is_automatic(tag):
        _check_kind(kind, changes.get("definition"), "manual")
    if not changes.keys() & {"definition", "namespaces"}:
        return None
    key = tag.pending_expression_id or tag.expression_id
    current = Expression.objects.filter(id=key).first() if key is not None else None
    if key is not None and current is None:
        raise _Overtaken
    text = changes.get("definition", current.text if current else None)
    namespaces = changes.get("namespaces", current.namespaces if current else {})
    if text:
        return text, namespaces
    if current is not None:
        raise KindChange(
            "without a definition it is a manual tag, with the nodes that it has now: "
            'send "kind": "manual" as well if that is meant',
            field="kind",
        )
    if namespaces:
        raise Invalid("a manual tag has no namespaces", field="namespaces")
    return None


def _describe(tag: Tag, changes: dict[str, Any]) -> None:
    fields = {key: changes[key] for key in ("name", "comment", "kernel_opts") if key in changes}
    if "name" in fields:
        _check_name(fields["name"])
    try:
        with transaction.atomic():
            Tag.objects.filter(id=tag.id).update(**fields, updated_at=Now())
    except IntegrityError:
        raise _taken(fields["name"]) from None


def _define(tag: Tag, new: Expression, by: User | None) -> None:
    if new.id == tag.pending_expression_id:
        return
    rebuilds.supersede(tag.id)
    is_published = new.id == tag.expression_id
    Tag.objects.filter(id=tag.id).update(pending_expression=None if is_published else new)
    if not is_published:
        rebuilds.begin([tag.id], Rebuild.Reason.DEFINITION, by)


def _insert(tag: Tag) -> Tag:
    """Insert in the caller's transaction, which an error ends. Raises AlreadyExists."""
    try:
        tag.save(force_insert=True)
    except IntegrityError:
        raise _taken(tag.name) from None
    return tag


def _check_kind(kind: Kind | None, definition: str | None, default: Kind) -> None:
    """Raises Invalid where the kind asked for and the definition do not go together."""
    if (kind or default) == "manual" and definition:
        raise Invalid("a manual tag has no definition", field="definition")
    if kind == "automatic" and not definition:
        raise Invalid("an automatic tag has a definition", field="definition")


def _check_name(name: str) -> None:
    if not re.fullmatch(TAG_NAME, name):
        raise Invalid(
            "a tag's name is 1 to 256 letters, digits, dashes or underscores", field="name"
        )


def _taken(name: str) -> AlreadyExists:
    return AlreadyExists(f"there is a tag {name!r} already", field="name")
