"""The entity tag of a tag's node list."""

from __future__ import annotations

import hashlib
from typing import NamedTuple
from uuid import UUID

from tagmill import sql
from tagmill.fleet import incarnation
from tagmill.tags.models import Tag


class _Membership(NamedTuple):
    incarnation: UUID | None
    state: str


def etag(tag: Tag) -> str:
    """A quoted entity tag: it changes whenever the list of the tag's nodes could."""
    values = {"expression": tag.expression_id, "tag": tag.id}
    (found,) = sql.named(_Membership, __file__, "membership", values)
    is_published = tag.pending_expression_id is None
    named = found.incarnation or incarnation.current()
    text = f"{named}:{tag.id}:{tag.expression_id}:{is_published}:{found.state}"
    return f'"{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"'
