"""The seeds' method: every answer is compared with lxml's, node by node."""

from __future__ import annotations

from collections.abc import Mapping

from django.db import connection

from expressions import documents as composed
from expressions import evaluation
from loadtest import documents

Answers = dict[str, set[int]]

_MEMBERS = """
SELECT tag.name, node_tag.node_id
  FROM node_tag JOIN tag ON tag.id = node_tag.tag_id
 WHERE tag.name = ANY(%s)
"""


def ask_lxml(definitions: Mapping[str, str]) -> Answers:
    """The nodes on which each definition holds, by the definition's name."""
    compiled = {name: evaluation.compile(text, {}) for name, text in definitions.items()}
    answers: Answers = {name: set() for name in compiled}
    for node in documents.stream():
        tree = composed.compose(node.probes)
        for name, expression in compiled.items():
            if expression.matches(tree):
                answers[name].add(node.node_id)
    return answers


def mismatches(reference: Answers) -> int:
    """(tag, node) pairs on which the published tags and lxml differ."""
    found: Answers = {name: set() for name in reference}
    with connection.cursor() as cursor:
        cursor.execute(_MEMBERS, [list(reference)])
        for name, node in cursor.fetchall():
            found[name].add(node)
    return sum(len(found[name] ^ nodes) for name, nodes in reference.items())
