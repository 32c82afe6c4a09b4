"""Updates under load: how many uploads the server accepts while rebuilds run, and how long it
takes until the tags show an update."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection

from loadtest.bench import percentile
from loadtest.rig.http import Api, ApiProblem
from loadtest.rig.rig import Running
from tagmill.fleet import at_rest
from tagmill.fleet.at_rest import AtRest

MARKER_TAG = "bench-marker"
MARKER = '<node id="bench-marker"/>'
# Nodes that the uploads go round; more would only take longer to read.
NODES = 200
# Between two looks at the marked node: what a delay is measured to.
LOOK_SECONDS = 0.005
PATIENCE_SECONDS = 120.0

_TARGETS = """
SELECT node.system_id, node.partition_id, node.slot, document.xml, packed, dictionary_id,
       document.size
  FROM node JOIN document ON document.node_id = node.id AND document.probe = 'lshw'
 WHERE node.deleted_at IS NULL
 ORDER BY node.id
 LIMIT %s
"""
_MARKED = """
SELECT coalesce(get_bit(match.members, %s), 0)
  FROM match JOIN tag ON tag.expression_id = match.expression_id
 WHERE tag.name = %s AND match.partition_id = %s
"""


@dataclass(frozen=True)
class Target:
    system_id: str
    xml: str
    partition: int
    slot: int

    def changed(self, number: int) -> bytes:
        """Other bytes that say the same."""
        return f"{self.xml}<!-- update {number} -->".encode()

    def marked(self) -> bytes:
        end = self.xml.rindex("</")
        return f"{self.xml[:end]}{MARKER}{self.xml[end:]}".encode()


class Uploader(threading.Thread):
    """Sends one document after the other on its own connection until it is told to stop."""

    def __init__(self, running: Running, targets: Sequence[Target]) -> None:
        super().__init__(daemon=True)
        self._api = Api(running.stack.url, running.rig.api_token)
        self._targets = targets
        self._stop_asked = threading.Event()
        self.accepted = 0
        self.refused = 0
        self.milliseconds: list[float] = []

    def run(self) -> None:
        for number, target in enumerate(itertools.cycle(self._targets)):
            if self._stop_asked.is_set():
                break
            began = time.perf_counter()
            try:
                self._api.put_xml(f"nodes/{target.system_id}/document", target.changed(number))
            except (ApiProblem, OSError):
                self.refused += 1
                continue
            self.accepted += 1
            self.milliseconds.append((time.perf_counter() - began) * 1000)
        self._api.close()

    def stop(self) -> None:
        self._stop_asked.set()
        self.join(PATIENCE_SECONDS)


def under_load(
    running: Running, names: Sequence[str], seconds: float, uploaders: int
) -> dict[str, Any]:
    """Rebuild all tags again and again for `seconds` while updates come; then wait for quiet."""
    running.rig.create_tags({MARKER_TAG: "//node[@id='bench-marker']"})
    running.settle()
    targets = _targets()
    # One node is the marker's own; each uploader has nodes of its own, so that none waits for
    # another's lock on a node.
    marked, rest = targets[0], targets[1:] or targets
    crowd = [
        Uploader(running, rest[number::uploaders] or rest[:1])
        for number in range(min(uploaders, len(rest)))
    ]
    for uploader in crowd:
        uploader.start()
    began = time.perf_counter()
    try:
        delays, rebuilds = _watch(running, names, marked, seconds)
    finally:
        for uploader in crowd:
            uploader.stop()
    lasted = time.perf_counter() - began
    quiet = time.perf_counter()
    running.settle()
    accepted = sum(uploader.accepted for uploader in crowd)
    sent = sorted(item for uploader in crowd for item in uploader.milliseconds)
    return {
        "seconds": round(lasted, 3),
        "uploaders": len(crowd),
        "accepted": accepted,
        "refused": sum(uploader.refused for uploader in crowd),
        "accepted_per_second": round(accepted / lasted, 2),
        "upload_p50_ms": round(percentile(sent, 0.5), 1),
        "upload_p95_ms": round(percentile(sent, 0.95), 1),
        "rebuilds": rebuilds,
        "delays": len(delays),
        "delay_p50_ms": round(percentile(delays, 0.5), 1),
        "delay_p95_ms": round(percentile(delays, 0.95), 1),
        "quiet_after_seconds": round(time.perf_counter() - quiet, 3),
    }


def _watch(
    running: Running, names: Sequence[str], marked: Target, seconds: float
) -> tuple[list[float], int]:
    """Milliseconds from each answered upload of the marked node to its tag; rebuilds finished."""
    api, rig = running.api, running.rig
    delays: list[float] = []
    rebuilds, current = 0, api.post("rebuilds/", {"tags": list(names)})["uuid"]
    deadline = time.perf_counter() + seconds
    wanted = 0
    while time.perf_counter() < deadline:
        wanted = 1 - wanted
        xml = marked.marked() if wanted else marked.changed(len(delays))
        api.put_xml(f"nodes/{marked.system_id}/document", xml)
        began = time.perf_counter()
        while rig.scalar(_MARKED, marked.slot, MARKER_TAG, marked.partition) != wanted:
            running.stack.check()
            if time.perf_counter() > began + PATIENCE_SECONDS:
                raise TimeoutError("an update did not reach its tag")
            time.sleep(LOOK_SECONDS)
        delays.append((time.perf_counter() - began) * 1000)
        if rig.scalar("SELECT state FROM rebuild WHERE uuid = %s", current) != "running":
            rebuilds += 1
            current = api.post("rebuilds/", {"tags": list(names)})["uuid"]
    delays.sort()
    return delays, rebuilds


def _targets() -> list[Target]:
    with connection.cursor() as cursor:
        cursor.execute(_TARGETS, [NODES])
        return [
            Target(name, at_rest.unpack(AtRest(*stored)), partition, slot)
            for name, partition, slot, *stored in cursor.fetchall()
        ]
