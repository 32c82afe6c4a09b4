"""`bench turnover`: machines come and go, so many times the fleet in all, and how large it is then.

Uploads and deletions are the domain's own, settled by the kernel; compaction runs as a server runs
it, and vacuum as PostgreSQL would. At most twice the partitions and bytes may be left.
"""

from __future__ import annotations

import random
import time
from argparse import ArgumentParser
from typing import Any

from django.db import connection
from rich.console import Console

from fixtures import loader
from fixtures.generate import generate_node
from fixtures.tags import SAMPLE_TAGS
from loadtest import bench
from loadtest.bench import Bench, BenchError, Session, add_fleet, check_sizes, machine
from loadtest.references.answers import ask_lxml, mismatches
from loadtest.rig.rig import Rig
from tagmill.fleet.documents import Upload
from tagmill.fleet.models import Node
from tagmill.flows import compaction, ingest

# What a fleet takes, without its trail, which is kept for some days.
TABLES = ("node", "document", "partition", "match", "assignment", "vocabulary", "past_partition")
MAX_TIMES = 100
MAX_GROWTH = 2.0
MAX_EVALUATIONS = 50_000
# The share of the nodes that come, and go, between two runs of the maintenance; autovacuum comes
# when a fifth of a table has changed.
STEP = 0.1
TOGETHER = 50


class TurnoverBench(Bench):
    name = "turnover"
    help = "machines that come and go: how many partitions and bytes are left"

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_fleet(parser, nodes=1_000)
        parser.add_argument("--times", type=int, default=10, help="the fleet's size, in all")
        parser.add_argument("--slots", type=int, default=128, help="of a partition")

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        check_sizes(options, "nodes")
        if not 1 <= options["times"] <= MAX_TIMES:
            raise BenchError(f"--times is 1 to {MAX_TIMES}")
        if options["slots"] % 8 or not 8 <= options["slots"] <= 1024:  # noqa: PLR2004 - said here
            raise BenchError("--slots is a multiple of 8, from 8 to 1,024")
        with bench.settings(partition_slots=options["slots"], settle_seconds=5):
            return _run(options, session)

    def show(self, console: Console, result: dict[str, Any]) -> None:
        before, after = result["before"], result["after"]
        console.print(
            f"{result['changed']:,} nodes came and as many went: {before['partitions']} partitions "
            f"became {after['partitions']}, {before['bytes'] / 1e6:.1f} MB became "
            f"{after['bytes'] / 1e6:.1f}, "
            f"{after['tombstones']:,} tombstones; {result['moved']:,} nodes were moved, "
            f"{1e3 * result['move_seconds'] / max(1, result['moved']):.2f} ms each"
        )

    def fault(self, result: dict[str, Any]) -> str | None:
        if result["growth"] > MAX_GROWTH:
            return f"it has grown to {result['growth']:.2f} times its size"
        return super().fault(result)


def _run(options: dict[str, Any], session: Session) -> dict[str, Any]:
    nodes = options["nodes"]
    loader.load(nodes, seed=options["seed"], profile=options["profile"])
    definitions = {tag.name: tag.definition for tag in SAMPLE_TAGS}
    with Rig(session.url, session.log) as rig:
        rig.create_tags(definitions)
        with rig.stack(1, []) as running:
            running.settle()
    before = _size()
    chosen = random.Random(options["seed"])  # noqa: S311 - no secret
    alive = list(Node.objects.filter(deleted_at=None).values_list("system_id", flat=True))
    step = max(1, int(STEP * nodes))
    changed = moved = 0
    seconds = 0.0
    while changed < options["times"] * nodes:
        for _ in range(step):
            place = chosen.randrange(len(alive))
            alive[place], alive[-1] = alive[-1], alive[place]
            ingest.delete(alive.pop())
        for first in range(0, step, TOGETHER):
            count = min(TOGETHER, step - first)
            made = [
                generate_node(nodes + changed + number, options["seed"], options["profile"])
                for number in range(count)
            ]
            ingest.store(
                [
                    Upload(item.system_id, "site-1", item.hostname, probes=item.probes)
                    for item in made
                ]
            )
            alive += [item.system_id for item in made]
            changed += count
        begin = time.perf_counter()
        while count := compaction.run():
            moved += count
        seconds += time.perf_counter() - begin
        _vacuum()
    after = _size()
    return {
        **{"bench": "turnover", "machine": machine(), "nodes": nodes, "slots": options["slots"]},
        **{"before": before, "after": after, "changed": changed, "moved": moved},
        "move_seconds": round(seconds, 3),
        "growth": max(after[name] / before[name] for name in ("partitions", "bytes")),
        "mismatches": mismatches(ask_lxml(definitions, MAX_EVALUATIONS)),
    }


def _vacuum() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"VACUUM {', '.join(TABLES)}")


def _size() -> dict[str, int]:
    _vacuum()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest(%s::text[]) AS name",
            [list(TABLES)],
        )
        ((size,),) = cursor.fetchall()
    return {**compaction.figures()._asdict(), "bytes": int(size)}
