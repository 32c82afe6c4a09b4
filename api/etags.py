"""Entity tags of what clients change, and the conditions on writes that name them.

A tag's, a node's or a cluster's entity tag names what PATCH changes, not the whole answer: counts,
states and dates move on while the resource is the one that the client has seen. It is for If-Match;
GET answers in full whatever If-None-Match says. A document's names its bytes, and GET answers 304.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.utils.http import parse_etags

from tagmill.errors import PreconditionFailed
from tagmill.fleet.models import Cluster
from tagmill.tags.models import Tag

DIGEST_BYTES = 16


def make(*parts: object) -> str:
    """A strong entity tag, quoted: the one place where they are made. Different parts make
    different tags."""
    return f'"{hashlib.blake2b(repr(parts).encode(), digest_size=DIGEST_BYTES).hexdigest()}"'


def of_document(digest: bytes | memoryview[int]) -> str:
    return make("document", bytes(digest))


def of_node(incarnation: UUID | None, node_id: int, rev: int) -> str:
    """Every change of a node or its documents stamps it with a higher rev; a move makes a row. Both
    are of one incarnation of the database; under None, not noted yet, nobody was given one."""
    return make("node", str(incarnation), node_id, rev)


def of_cluster(cluster: Cluster) -> str:
    return make("cluster", str(cluster.uuid), cluster.name)


def of_tag(tag: Tag) -> str:
    """Publishing a definition leaves it as it is: nobody has changed the tag."""
    current = tag.pending_expression or tag.expression
    definition = bytes(current.digest) if current else None
    return make("tag", tag.id, tag.name, tag.comment, tag.kernel_opts, definition)


@dataclass(frozen=True)
class Condition:
    """If-Match and If-None-Match of a write, as lists of entity tags or `*`; None: not sent."""

    match: Sequence[str] | None
    none_match: Sequence[str] | None

    def check(self, current: str | None) -> None:
        """`current` is the entity tag under the lock that the write takes, None where there is
        nothing yet. Raises PreconditionFailed."""
        if self.match is not None and (
            current is None or not ("*" in self.match or current in self.match)
        ):
            raise PreconditionFailed(
                "it is not what If-Match names: somebody has changed it. Get it again and decide "
                "anew"
                if current
                else "there is nothing yet that If-Match could name"
            )
        if self.none_match is not None and current is not None:
            # Weak comparison, as RFC 9110 has it here.
            named = {tag.removeprefix("W/") for tag in self.none_match}
            if "*" in named or current in named:
                raise PreconditionFailed("it exists already, which If-None-Match excludes")

    def of_document(self, probe: str) -> Callable[[Any], None]:
        """`check` of the document that the probe printed, for an upload's `expects`."""

        def check(node: Any) -> None:
            digest = None if node is None else node.digests.get(probe)
            self.check(None if digest is None else of_document(digest))

        return check


def condition(header: Callable[[str], str | None]) -> Condition:
    """What the headers of a request say, each asked for by its name."""

    def tags_in(name: str) -> Sequence[str] | None:
        value = header(name)
        return None if value is None else parse_etags(value)

    return Condition(tags_in("If-Match"), tags_in("If-None-Match"))
