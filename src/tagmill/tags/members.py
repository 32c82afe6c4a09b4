"""The entity tag of a tag's node list."""

from __future__ import annotations

import hashlib

from tagmill import sql
from tagmill.fleet import incarnation
from tagmill.tags.models import Tag


def etag(tag: Tag) -> str:
    """A quoted entity tag: it changes whenever the list of the tag's nodes could."""
    values = {"expression": tag.expression_id, "tag": tag.id}
    ((uuid, state),) = sql.rows(__file__, "membership", values)
    is_published = tag.pending_expression_id is None
    named = uuid or incarnation.current()
    text = f"{named}:{tag.id}:{tag.expression_id}:{is_published}:{state}"
    return f'"{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"'
