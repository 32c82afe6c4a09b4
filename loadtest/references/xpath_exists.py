"""The database doing it alone: `xpath_exists` over the same documents, as MAAS does it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from typing import NamedTuple

import psycopg

from loadtest.references.documents import NodeDocuments
from tagmill_expressions import definition, documents


class Answer(NamedTuple):
    seconds: float
    matched: int


class XpathExists:
    """One table of documents in a PostgreSQL that has libxml. Dropped by `close`."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._cores = os.cpu_count() or 1
        self._execute("DROP TABLE IF EXISTS tagmill_bench_document")
        self._execute("CREATE TABLE tagmill_bench_document (id bigint PRIMARY KEY, doc xml)")
        with contextlib.suppress(psycopg.errors.FeatureNotSupported):
            # The stronger baseline where the server can: lz4 unpacks faster than pglz.
            self._execute("ALTER TABLE tagmill_bench_document ALTER doc SET COMPRESSION lz4")
        # The planner counts pages of the main table, where these rows are only pointers to TOAST,
        # and would never go parallel by itself: tell it to use every core.
        self._execute(f"ALTER TABLE tagmill_bench_document SET (parallel_workers = {self._cores})")

    def load(self, nodes: Iterable[NodeDocuments]) -> int:
        """Copies each node's composed document; returns how many."""
        count = 0
        with (
            self._connection.cursor() as cursor,
            cursor.copy("COPY tagmill_bench_document FROM STDIN") as copy,
        ):
            for node in nodes:
                copy.write_row((node.node_id, documents.compose_xml(node.probes)))
                count += 1
        self._execute("VACUUM ANALYZE tagmill_bench_document")
        # One pass that reads everything, so that no arm pays for the first touch of a page.
        self._execute("SELECT count(octet_length(doc::text)) FROM tagmill_bench_document")
        return count

    def count(self, text: str, *, parallel: bool = False) -> Answer:
        """How long one definition takes over all documents, and how many rows it calls a match.

        A boolean or a number is a match to `xpath_exists` even when it is false or 0.
        """
        checked = definition.check(text)
        namespaces = [list(item) for item in checked.libxml2_namespaces.items()]
        workers = self._cores - 1 if parallel else 0  # the leader works too
        for name, value in (
            ("max_parallel_workers_per_gather", workers),
            ("parallel_setup_cost", 0),
            ("parallel_tuple_cost", 0),
        ):
            self._execute(f"SET {name} = {value}")
        started = time.perf_counter()
        row = self._connection.execute(
            "SELECT count(*) FROM tagmill_bench_document WHERE xpath_exists(%s, doc, %s::text[])",
            [checked.libxml2_text, namespaces or "{}"],
        ).fetchone()
        seconds = time.perf_counter() - started
        return Answer(seconds, row[0] if row else 0)

    def close(self) -> None:
        self._execute("DROP TABLE IF EXISTS tagmill_bench_document")
        self._connection.close()

    def _execute(self, statement: str) -> None:
        self._connection.execute(statement)
