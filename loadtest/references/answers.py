"""The seeds' method: every answer is compared with lxml's, node by node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.db import connection

from loadtest.references import documents
from tagmill_expressions import documents as composed
from tagmill_expressions import evaluation

_MEMBERS = """
SELECT tag.name, node_tag.node_id
  FROM node_tag JOIN tag ON tag.id = node_tag.tag_id
 WHERE tag.name = ANY(%s) AND node_tag.node_id %% %s = 0
"""


@dataclass(frozen=True)
class Reference:
    """`members`: the nodes on which each definition holds, by its name; of every node whose id
    `every` divides."""

    members: dict[str, set[int]]
    every: int
    evaluations: int


def ask_lxml(definitions: Mapping[str, str], most: int | None = None) -> Reference:
    """lxml's answers for the nodes as they are now.

    `most` bounds the evaluations: a sample of the nodes is asked where the fleet has more, but
    every definition always. 500 definitions on 100,000 nodes would take lxml an hour.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM node WHERE deleted_at IS NULL")
        (nodes,) = cursor.fetchone()
    wanted = nodes * len(definitions)
    every = -(-wanted // most) if most else 1
    compiled = {name: evaluation.compile(text, {}) for name, text in definitions.items()}
    members: dict[str, set[int]] = {name: set() for name in compiled}
    evaluations = 0
    for node in documents.stream():
        if node.node_id % every:
            continue
        tree = composed.compose(node.probes)
        evaluations += len(compiled)
        for name, expression in compiled.items():
            if expression.matches(tree):
                members[name].add(node.node_id)
    return Reference(members, every, evaluations)


def mismatches(reference: Reference) -> int:
    """(tag, node) pairs on which the published tags and lxml differ."""
    found: dict[str, set[int]] = {name: set() for name in reference.members}
    with connection.cursor() as cursor:
        cursor.execute(_MEMBERS, [list(reference.members), reference.every])
        for name, node in cursor.fetchall():
            found[name].add(node)
    return sum(len(found[name] ^ nodes) for name, nodes in reference.members.items())
