"""What clients were told is stored, and what of it the database does not have."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from django.db import connection

from loadtest.references import documents
from tagmill import sql

_NODES = "SELECT id, system_id FROM node WHERE deleted_at IS NULL"
_TAGS = """
SELECT tag.name, coalesce(pending.text, expression.text)
  FROM tag
  LEFT JOIN expression ON expression.id = tag.expression_id
  LEFT JOIN expression pending ON pending.id = tag.pending_expression_id
"""


@dataclass
class Ledger:
    """Written by the clients, each its own nodes and tags, after the answer; read while they rest.

    A client repeats what was not answered until it is: whatever the server makes of the attempts,
    what is stored in the end is what was answered last."""

    documents: dict[str, str] = field(default_factory=dict)
    definitions: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def stored(self, system_id: str, xml: str) -> None:
        with self._lock:
            self.documents[system_id] = xml

    def deleted(self, system_id: str) -> None:
        with self._lock:
            self.documents.pop(system_id, None)

    def defined(self, tag: str, text: str) -> None:
        with self._lock:
            self.definitions[tag] = text

    def lost(self) -> list[str]:
        """What the database has otherwise than its clients were answered."""
        with sql.snapshot(), connection.cursor() as cursor:
            nodes = stored_documents()
            cursor.execute(_TAGS)
            tags = dict(cursor.fetchall())
        return [
            *_differences("node", self.documents, nodes),
            *_differences("tag", self.definitions, tags),
        ]


def stored_documents() -> dict[str, str]:
    """The inventory of each node, by its system_id; "" of one that has none."""
    with sql.snapshot(), connection.cursor() as cursor:
        cursor.execute(_NODES)
        names = dict(cursor.fetchall())
        found = dict.fromkeys(names.values(), "")
        for node in documents.stream():
            if node.node_id in names:
                found[names[node.node_id]] = node.probes.get("lshw", "")
    return found


def _differences(kind: str, told: dict[str, str], found: dict[str, str]) -> list[str]:
    wrong = [f"{kind} {name} is not there" for name in told.keys() - found.keys()]
    wrong += [f"{kind} {name} is there, and was deleted" for name in found.keys() - told.keys()]
    both = told.keys() & found.keys()
    wrong += [f"{kind} {name} has older content" for name in both if told[name] != found[name]]
    return sorted(wrong)
