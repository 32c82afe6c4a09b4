"""Changes of documents over HTTP: by several clients, until a tag shows them, and in bulk."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import orjson
from django.db import connection

from loadtest.bench import BenchError
from loadtest.rig.clients import Ask, Clients
from loadtest.rig.http import Api
from loadtest.rig.rig import Rig, Running
from tagmill.fleet import at_rest
from tagmill.fleet.at_rest import AtRest

MARKER_TAG = "bench-marker"
MARKER_DEFINITION = "//node[@id='bench-marker']"
MARKER = '<node id="bench-marker"/>'
# Between two looks at the marked node: what a delay is measured to where nothing was settled.
LOOK_SECONDS = 0.002
PATIENCE_SECONDS = 120.0
# More than a bulk import of MAX_TARGETS nodes takes on any machine.
IMPORT_SECONDS = 600.0
MAX_TARGETS = 5_000

# In an order that spreads them over the partitions, and is the same each time.
_TARGETS = """
SELECT node.id, node.system_id, document.xml, packed, dictionary_id, document.size
  FROM node JOIN document ON document.node_id = node.id AND document.probe = 'lshw'
 WHERE node.deleted_at IS NULL
 ORDER BY md5(node.system_id)
 LIMIT %s
"""
_SHOWN = """
SELECT EXISTS (
    SELECT FROM node_tag JOIN tag ON tag.id = node_tag.tag_id
     WHERE tag.name = %s AND node_tag.node_id = %s
)
"""
_STATE = "SELECT state FROM rebuild WHERE uuid = %s"
_MATCH_ROWS = "SELECT n_tup_ins + n_tup_upd FROM pg_stat_user_tables WHERE relname = 'match'"
# Whoever is connected has not said yet what it wrote: a backend says all when it ends.
_CONNECTED = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


@dataclass(frozen=True)
class Target:
    node_id: int
    system_id: str
    xml: str

    def altered(self, number: int) -> bytes:
        """Other content, about which no definition of a bench asks."""
        return self._with(f'<node id="bench-change"><serial>{number}</serial></node>')

    def marked(self) -> bytes:
        return self._with(MARKER)

    def _with(self, piece: str) -> bytes:
        end = self.xml.rindex("</")
        return f"{self.xml[:end]}{piece}{self.xml[end:]}".encode()


@dataclass
class Uploads:
    """`milliseconds` of each request, sorted; `settled`: how many were answered as settled."""

    seconds: float
    milliseconds: list[float]
    settled: int

    @property
    def per_second(self) -> float:
        return len(self.milliseconds) / self.seconds


@dataclass
class Delays:
    milliseconds: list[float] = field(default_factory=list)
    settled: int = 0
    rebuilds: int = 0


class Changes:
    """No content is sent twice. The first target is the one that is marked; the others' changes
    flip no verdict."""

    def __init__(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(_TARGETS, [MAX_TARGETS])
            self._marked, *self._others = [
                Target(node, name, at_rest.unpack(AtRest(*stored)))
                for node, name, *stored in cursor.fetchall()
            ]
        self._numbers = itertools.count()

    def upload(self, running: Running, clients: int, seconds: float) -> Uploads:
        """Changes of different nodes by so many clients, each without pause on its connection."""
        settled: list[int] = [0] * clients

        @contextlib.contextmanager
        def connect(number: int) -> Iterator[Ask]:
            api = Api(running.stack.url, running.rig.api_token)
            mine = itertools.cycle(self._others[number::clients])

            def ask() -> float:
                target = next(mine)
                body = target.altered(next(self._numbers))
                began = time.perf_counter()
                settled[number] += _put(api, target, body)
                return time.perf_counter() - began

            try:
                yield ask
            finally:
                api.close()

        began = time.perf_counter()
        with Clients(clients, connect, PATIENCE_SECONDS) as crowd:
            time.sleep(seconds)
            crowd.wait(running.stack.check)
        lasted = time.perf_counter() - began
        crowd.check()
        return Uploads(lasted, [spent * 1000 for spent in crowd.seconds()], sum(settled))

    def series(self, number: int, clients: int) -> Iterator[Target]:
        """The nodes that this one of so many clients changes, again and again."""
        return itertools.cycle(self._others[number::clients])

    def send(self, api: Api, target: Target) -> bool:
        """Other content for the node; whether it is settled."""
        return _put(api, target, target.altered(next(self._numbers)))

    def visible(self, running: Running, seconds: float, rebuilt: Sequence[str] = ()) -> Delays:
        """From the request to the tag that shows it, again and again for `seconds`; with `rebuilt`,
        while these tags are rebuilt again and again. Raises BenchError for what is answered as
        settled and is not."""
        api, rig, target = running.api, running.rig, self._marked
        found, wanted, rebuild = Delays(), bool(rig.scalar(_SHOWN, MARKER_TAG, self._node)), None
        deadline = time.monotonic() + seconds
        while not found.milliseconds or time.monotonic() < deadline:
            if rebuilt and (rebuild is None or rig.scalar(_STATE, rebuild) != "running"):
                rebuild = api.post("rebuilds/", {"tags": list(rebuilt)})["uuid"]
                found.rebuilds += 1
            wanted = not wanted
            body = target.marked() if wanted else target.altered(next(self._numbers))
            began = time.perf_counter()
            is_settled = _put(api, target, body)
            found.settled += is_settled
            while rig.scalar(_SHOWN, MARKER_TAG, self._node) != wanted:
                if is_settled:
                    raise BenchError("an upload was answered as settled, but its tag is not there")
                running.stack.check()
                if time.perf_counter() > began + PATIENCE_SECONDS:
                    raise BenchError(f"an upload did not reach its tag in {PATIENCE_SECONDS:g} s")
                time.sleep(LOOK_SECONDS)
            found.milliseconds.append((time.perf_counter() - began) * 1000)
        found.milliseconds.sort()
        return found

    def imported(self, running: Running) -> dict[str, float]:
        """Nodes a second of a bulk import that changes all of them, and of the same once more."""
        lines = [
            orjson.dumps(
                {
                    "system_id": target.system_id,
                    "probes": {"lshw": target.altered(next(self._numbers)).decode()},
                }
            )
            for target in self._others
        ]
        body = b"\n".join(lines)
        api = Api(running.stack.url, running.rig.api_token, IMPORT_SECONDS)
        found: dict[str, float] = {"nodes": len(lines)}
        try:
            for outcome, name in (("updated", "changed"), ("unchanged", "unchanged")):
                began = time.perf_counter()
                summary = api.post_lines("nodes/import", body)[-1].get("summary", {})
                lasted = time.perf_counter() - began
                if summary.get(outcome) != len(lines):
                    raise BenchError(f"of {len(lines)} nodes, the import says: {summary}")
                found[f"{name}_per_second"] = round(len(lines) / lasted, 1)
                running.settle()
                found[f"{name}_settled_seconds"] = round(time.perf_counter() - began, 3)
        finally:
            api.close()
        return found

    @property
    def _node(self) -> int:
        return self._marked.node_id


def match_rows(rig: Rig) -> int:
    """Rows of `match` that were inserted or updated so far, by all whose connections have ended.
    Call it when the stack has stopped."""
    connection.close()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while rig.scalar(_CONNECTED):
        if time.monotonic() > deadline:
            raise BenchError("somebody else is connected to the scratch database")
        time.sleep(LOOK_SECONDS)
    return int(rig.scalar(_MATCH_ROWS))


def wal_bytes(rig: Rig) -> int:
    # What is inserted: where commits do not wait for it, it is written later.
    return int(rig.scalar("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"))


def _put(api: Api, target: Target, body: bytes) -> bool:
    """Whether it is settled. Raises BenchError where nothing changed."""
    answer = api.put_xml(f"nodes/{target.system_id}/document", body)
    if answer["outcome"] != "updated":
        raise BenchError(f"a changed document of {target.system_id} was {answer['outcome']}")
    return bool(answer["settled"])
