"""Everything at once: nobody waits for each other for ever, or takes locks out of order.

`TAGMILL_TEST_ROUNDS` makes it longer.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from tagmill import errors, locks
from tagmill.fleet import clusters
from tagmill.fleet.documents import Upload
from tagmill.fleet.models import Cluster
from tagmill.flows import full_partitions, ingest, maintenance
from tagmill.flows.clusters import delete as delete_cluster
from tagmill.matches import staleness
from tagmill.tags import assignments, previews, rebuilds, tags
from tagmill.tags.models import Preview, Rebuild, Tag
from tagmill.work import leases, queue
from tagmill_wire.messages import Failure
from tests.support.sql import execute
from tests.support.threads import in_thread
from tests.support.workers import a_worker, complete, evaluated, result, work

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = int(os.environ.get("TAGMILL_TEST_ROUNDS", "2"))
# Nothing here takes a tenth of it; it only ends a test that would hang.
SECONDS = 60.0 + 30.0 * ROUNDS
TEXTS = [f"//node[{number}]" for number in range(1, 5)]
SYSTEM_IDS = [f"n{number}" for number in range(40)]
NAMES = [f"t{number}" for number in range(5)]
SOUTHS = ["south-1", "south-2"]
# What somebody may be told when others were first. The database is never among them.
REFUSALS = (
    errors.AlreadyExists,
    errors.AutomaticTag,
    errors.DatabaseUnavailable,
    errors.Invalid,
    errors.KindChange,
    errors.ManualTag,
    errors.NotCancellable,
    errors.NotFound,
    errors.StillInUse,
)


@pytest.fixture(autouse=True)
def _fleet(no_jobs: None, configure: Callable[..., None]) -> None:
    configure(partition_slots=8, expression_hours=0)
    clusters.create("north")


@pytest.fixture
def out_of_order() -> Iterator[list[str]]:
    """What took a lock that comes before one that its transaction had."""
    found: list[str] = []
    mine = threading.local()

    def watch(kind: locks.Lock) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT extract(epoch FROM transaction_timestamp())::text")
            (began,) = cursor.fetchone() or ("",)
        last = getattr(mine, "last", None)
        if last is not None and last[0] == began:
            if kind < last[1]:
                found.append(f"{kind.name} after {last[1].name}")
            elif kind == locks.Lock.JOB == last[1]:
                found.append("jobs twice")
        mine.last = (began, kind)

    locks.watchers.append(watch)
    yield found
    locks.watchers.remove(watch)


def deadlocks() -> int:
    # A backend reports what it has counted when it ends, or when it is idle.
    execute("SELECT pg_stat_clear_snapshot()")
    found = execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    return int(found[0][0])


class Chaos:
    """One of the things that happen at once. Refusals are answers; whatever else comes is not."""

    def __init__(self, seed: int, user: User) -> None:
        self.chance = random.Random(seed)
        self.user = user
        self.client = f"client {seed % 2}"
        self.done: set[str] = set()
        self.worker = a_worker(name=f"worker {seed}")

    def upload(self) -> None:
        chosen = self.chance.sample(SYSTEM_IDS, 6)
        cluster = self.chance.choice(["north", None, *SOUTHS])
        xml = f"<list><node/><i>{self.chance.random()}</i></list>".encode()
        ingest.store([Upload(name, cluster, probes={"lshw": xml}) for name in chosen])

    def delete_node(self) -> None:
        ingest.delete(self.chance.choice(SYSTEM_IDS))

    def empty(self) -> None:
        """A cluster of two loses its nodes, goes, and comes again."""
        name = self.chance.choice(SOUTHS)
        with contextlib.suppress(*REFUSALS):
            clusters.create(name)
        for system_id in Cluster.objects.filter(
            name=name, partitions__nodes__deleted_at=None
        ).values_list("partitions__nodes__system_id", flat=True):
            if system_id:
                with contextlib.suppress(*REFUSALS):
                    ingest.delete(system_id)
        cluster = Cluster.objects.filter(name=name).first()
        if cluster is not None:
            delete_cluster(cluster)

    def rename(self) -> None:
        one, other = self.chance.sample([*NAMES, "free"], 2)
        tags.update(one, name=other)

    def rename_cluster(self) -> None:
        cluster = Cluster.objects.filter(name__in=SOUTHS).order_by("?").first()
        if cluster is not None:
            clusters.rename(cluster, self.chance.choice(SOUTHS))

    def create(self) -> None:
        tags.create(self.chance.choice(NAMES), definition=self.chance.choice(TEXTS))

    def manual(self) -> None:
        name = self.chance.choice(["m0", "m1"])
        with contextlib.suppress(*REFUSALS):
            tags.create(name)
        chosen = self.chance.sample(SYSTEM_IDS, 6)
        assignments.assign(name, chosen[:4], chosen[4:])

    def define(self) -> None:
        changes: dict[str, Any] = {"definition": self.chance.choice(TEXTS)}
        if self.chance.random() < 0.2:
            changes = {"namespaces": {"p": "p"}}
        elif self.chance.random() < 0.1:
            changes = {"kind": "manual"}
        tags.update(self.chance.choice(NAMES), **changes)

    def delete(self) -> None:
        tags.delete(self.chance.choice([*NAMES, "m0", "m1"]))

    def force(self) -> None:
        rebuilds.request(self.chance.choice([None, [self.chance.choice(NAMES)]]), self.user)

    def cancel(self) -> None:
        found = Rebuild.objects.filter(state="running").order_by("?").first()
        if found is not None:
            rebuilds.cancel(found.uuid)

    def preview(self) -> None:
        compared = self.chance.choice([None, self.chance.choice(NAMES)])
        text = self.chance.choice(TEXTS)
        made = previews.start(text, {}, self.user, self.client, compared)
        if self.chance.random() < 0.3:
            previews.cancel(made.uuid)

    def lease(self) -> None:
        answer = leases.grant(self.worker, 4, []).answer
        leases.heartbeat(self.worker, [item.lease for item in answer.leases])
        said = []
        for item in answer.leases:
            luck = self.chance.random()
            if luck < 0.1:
                leases.give_up(self.worker, [item.lease], "chaos")
            elif luck < 0.2:
                failures = [Failure(one.expression, "chaos") for one in item.expressions]
                said.append(result(item, {}, failures=failures))
            elif luck < 0.95:
                with contextlib.suppress(*REFUSALS):
                    said.append(evaluated(answer, item))
        self.chance.shuffle(said)
        complete(self.worker, *said)

    def maintain(self) -> None:
        if self.chance.random() < 0.3:
            execute("UPDATE lease SET deadline = now() WHERE random() < 0.2")
            old = "finished_at < now() - interval '1 second' AND random() < 0.2"
            execute(f"UPDATE rebuild SET finished_at = '2000-01-01' WHERE {old}")
        for task in (
            maintenance.reap,
            maintenance.sweep,
            maintenance.collect,
            maintenance.collect_expressions,
            rebuilds.settle,
            full_partitions.delete_empty,
            maintenance.clean,
            maintenance.compact,
        ):
            task()  # type: ignore[operator]

    def run(self, start: threading.Barrier) -> None:
        for _ in range(ROUNDS):
            start.wait(SECONDS)
            for step in self.chance.choices(
                [
                    self.upload, self.delete_node, self.empty, self.rename, self.rename_cluster,
                    self.create, self.manual, self.define, self.delete, self.force, self.cancel,
                    self.preview, self.lease, self.maintain,
                ],
                [4, 1, 2, 1, 1, 3, 2, 4, 1, 2, 1, 3, 6, 1],
                k=6,
            ):  # fmt: skip
                with contextlib.suppress(*REFUSALS):
                    step()
                    self.done.add(step.__name__)


@pytest.mark.parametrize("settle_seconds", [0, 5])
def test_everything_at_once_never_deadlocks(
    out_of_order: list[str], configure: Callable[..., None], settle_seconds: int
) -> None:
    configure(settle_seconds=settle_seconds)
    user = User.objects.create_user("ann")
    before = deadlocks()
    many = [Chaos(seed, user) for seed in range(6)]
    start = threading.Barrier(len(many))
    running = [in_thread(lambda one=one: one.run(start)) for one in many]
    for future in running:
        future.result(SECONDS)
    # It is about what was done, not about what was refused.
    done = set[str]().union(*(one.done for one in many))
    assert done >= {"upload", "empty", "create", "define", "force", "preview", "lease"}
    assert out_of_order == []
    assert deadlocks() == before
    # And it still is what it says: everything that is left to do can be done.
    Preview.objects.all().delete()
    execute("UPDATE expression SET preview_until = NULL")
    execute("UPDATE lease SET deadline = now()")
    leases.reap()
    leases.repair()
    work(many[0].worker)
    assert staleness.stale_partitions() == []
    assert queue.job_counts()["todo"] == queue.job_counts()["doing"] == 0
    assert (
        not Tag.objects.exclude(pending_expression=None)
        .filter(pending_expression__failed_at=None)
        .exists()
    )
