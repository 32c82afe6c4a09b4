"""Uploads, deletes, definitions, previews, leases, restores of the database, and late, duplicate
and lost completions, in any order.

At every step each match is what some state of its partition, not older than its rev, says; a tag
flips only when its new expression is evaluated everywhere. At the end every tag is what lxml says.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import F, Q
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tagmill import config, locks
from tagmill.errors import NotCancellable, UnknownExpressionSet, WorkerGone
from tagmill.fleet import clusters
from tagmill.fleet.documents import Upload, Verdict
from tagmill.fleet.models import Node, Partition
from tagmill.flows import compaction, completions, ingest, maintenance
from tagmill.locks import Lock
from tagmill.matches import expression_sets, staleness
from tagmill.matches.models import Expression, ExpressionSet, Match, MatchChange
from tagmill.tags import freshness, previews, rebuilds, tags
from tagmill.tags.models import NodeTag, Preview, Rebuild, Tag
from tagmill.work import leases, queue, workers
from tagmill.work.models import Lease, Worker
from tagmill_wire import bitmap
from tagmill_wire.messages import Completion, PartitionResult, Register
from tests.stateful.model import DEFINITIONS, DOCUMENTS, LLDP, Fetch, Image, Probes, holds
from tests.stateful.stored import Stored, StoredMatch

CLUSTERS = ("north", "south")
SYSTEM_IDS = [f"n{number}" for number in range(10)]
TAGS = ("red", "blue")
CLIENTS = ("left", "right")
SLOTS = 8
# The worker that is leased, and answers, by expression sets; the other one is of an older protocol.
SPEAKS_SETS = 1
# For how long a server evaluates what is uploaded: not at all, hardly (what takes few steps is
# still answered), and as long as it needs.
SETTLE_SECONDS = ("0", "0.000001", "5")


class Fleet(RuleBasedStateMachine):
    moved = 0
    """Nodes that compaction has moved, in all walks."""

    def __init__(self) -> None:
        super().__init__()
        self.settle_for(SETTLE_SECONDS[-1])
        self.atomic = transaction.atomic()
        self.atomic.__enter__()
        for name in CLUSTERS:
            clusters.create(name)
        self.user = User.objects.create_user("ann")
        self.workers = [self.register(number) for number in range(2)]
        self.images: dict[tuple[int, int], Image] = {}
        self.fetches: list[Fetch] = []
        self.results: list[tuple[int, str, list[PartitionResult]]] = []
        """The last of each is by set, where the lease was; the first names expressions."""
        self.history: dict[tuple[int, int], list[tuple[int, Probes]]] = {}
        """(partition, slot) to what the node's documents were, from which rev on."""
        self.published: dict[int, int | None] = {}
        self.targets: dict[int, dict[int, int]] = {}
        """tag to {partition: rev when the pending definition was set}."""
        self.dumped: tuple[str, Any] | None = None
        """A savepoint, and what the model knew then."""
        self.written: int | None = None
        """How many rows of the database were written until the step before."""

    def teardown(self) -> None:
        try:
            self.settle()
            self.everything_is_true()
        finally:
            transaction.set_rollback(True)
            self.atomic.__exit__(None, None, None)

    def register(self, number: int) -> Worker:
        token, _ = workers.issue_token(f"token-{number}", "all")
        return workers.register(token, Register(f"w{number}", "model", "1"))

    # -- people ----------------------------------------------------------------------------------

    @rule(
        chosen=st.lists(
            st.tuples(
                st.sampled_from(SYSTEM_IDS),
                st.sampled_from(CLUSTERS),
                st.sampled_from(sorted(DOCUMENTS)),
                st.sampled_from(sorted(LLDP)),
            ),
            min_size=1,
            max_size=4,
        )
    )
    def upload(self, chosen: list[tuple[str, str, str, str]]) -> None:
        uploads = []
        for system_id, cluster, lshw, lldp in chosen:
            given = {"lshw": DOCUMENTS[lshw], "lldp": LLDP[lldp]}
            probes = {probe: xml.encode() if xml else None for probe, xml in given.items()}
            uploads.append(Upload(system_id, cluster, None, None, probes))
        before = self.places()
        verdicts = ingest.store(uploads)
        assert all(verdict.error is None for verdict in verdicts)
        self.remember(before)
        self.what_is_settled_is_true(verdicts)

    @rule(
        chosen=st.tuples(
            st.sampled_from(SYSTEM_IDS),
            st.sampled_from(CLUSTERS),
            st.sampled_from(sorted(DOCUMENTS)),
            st.sampled_from(sorted(LLDP)),
        ),
        worker=st.integers(0, 1),
        name=st.sampled_from(TAGS),
        definition=st.sampled_from(DEFINITIONS),
        probe=st.sampled_from(["", "", "s1", "s2"]),
    )
    def upload_late(
        self,
        chosen: tuple[str, str, str, str],
        worker: int,
        name: str,
        definition: str,
        probe: str,
    ) -> None:
        """Between the evaluation of an upload and its locks, what is live changes, a worker
        completes, and the node itself may get another document."""

        def meanwhile(kind: Lock) -> None:
            if kind != Lock.PARTITION or meanwhile not in locks.watchers:
                return
            locks.watchers.remove(meanwhile)
            self.define_as(name, definition)
            if probe:
                before = self.places()
                ingest.store([Upload(chosen[0], probes={"lldp": LLDP[probe].encode()})])
                self.remember(before)
            self.work(worker)

        locks.watchers.append(meanwhile)
        try:
            self.upload([chosen])
        finally:
            if meanwhile in locks.watchers:
                locks.watchers.remove(meanwhile)

    @rule(seconds=st.sampled_from(SETTLE_SECONDS))
    def settle_for(self, seconds: str) -> None:
        os.environ["TAGMILL_SETTLE_SECONDS"] = seconds
        config.load.cache_clear()

    @rule(system_id=st.sampled_from(SYSTEM_IDS))
    def delete(self, system_id: str) -> None:
        if Node.objects.filter(system_id=system_id, deleted_at=None).exists():
            ingest.delete(system_id)
            self.remember()

    @rule(name=st.sampled_from(TAGS), definition=st.sampled_from(DEFINITIONS))
    def define(self, name: str, definition: str) -> None:
        self.define_as(name, definition)

    def define_as(self, name: str, definition: str) -> None:
        if Tag.objects.filter(name=name).exists():
            tag = tags.update(name, definition=definition)
        else:
            tag = tags.create(name, definition=definition)
        self.targets[tag.id] = dict(Partition.objects.values_list("id", "rev"))

    @rule(name=st.sampled_from(TAGS))
    def delete_tag(self, name: str) -> None:
        if Tag.objects.filter(name=name).exists():
            tags.delete(name)

    @rule(name=st.sampled_from(TAGS))
    def rebuild(self, name: str) -> None:
        if Tag.objects.filter(name=name).exists():
            rebuilds.request([name], None)

    @rule()
    def cancel(self) -> None:
        running = Rebuild.objects.filter(state="running").order_by("id").first()
        if running:
            # A new tag has nothing older to keep.
            with contextlib.suppress(NotCancellable):
                rebuilds.cancel(running.uuid)

    @rule(
        client=st.sampled_from(CLIENTS),
        definition=st.sampled_from(DEFINITIONS),
        compare_to=st.sampled_from((None, *TAGS)),
    )
    def preview(self, client: str, definition: str, compare_to: str | None) -> None:
        if not Tag.objects.filter(name=compare_to).exists():
            compare_to = None
        previews.start(definition, {}, self.user, client, compare_to)
        assert Preview.objects.filter(client=client).count() == 1

    @rule(client=st.sampled_from(CLIENTS))
    def cancel_preview(self, client: str) -> None:
        found = Preview.objects.filter(client=client).first()
        if found:
            previews.cancel(found.uuid)

    @rule(client=st.sampled_from(CLIENTS))
    def let_a_preview_expire(self, client: str) -> None:
        Preview.objects.filter(client=client).update(expires_at=F("created_at") - timedelta(days=1))
        previews.forget_expired()
        assert not Preview.objects.filter(client=client).exists()

    @rule(name=st.sampled_from(TAGS), client=st.sampled_from(CLIENTS))
    def commit_a_preview(self, name: str, client: str) -> None:
        """Nothing is evaluated again for a definition that is evaluated everywhere."""
        found = Preview.objects.select_related("expression").filter(client=client).first()
        if found is None:
            return
        is_fresh = not staleness.stale_for([found.expression_id])
        jobs = queue.job_counts()
        self.define_as(name, found.expression.text)
        if is_fresh:
            assert Tag.objects.get(name=name).expression_id == found.expression_id
            assert queue.job_counts() == jobs

    # -- the database ----------------------------------------------------------------------------

    @rule()
    def dump(self) -> None:
        known = self.history, self.published, self.targets
        self.dumped = transaction.savepoint(), copy.deepcopy(known)

    @precondition(lambda self: self.dumped)
    @rule()
    def restore(self) -> None:
        """The database goes back, under workers that go on with what they hold and have."""
        assert self.dumped is not None
        savepoint, known = self.dumped
        transaction.savepoint_rollback(savepoint)
        self.history, self.published, self.targets = copy.deepcopy(known)
        with connection.cursor() as cursor:
            cursor.execute("UPDATE incarnation SET history = 'before'")

    @rule(
        worker=st.integers(0, 1),
        system_id=st.sampled_from(SYSTEM_IDS),
        lost=st.sampled_from(sorted(DOCUMENTS)),
        stored=st.sampled_from(sorted(DOCUMENTS)),
    )
    def lose_a_document(self, worker: int, system_id: str, lost: str, stored: str) -> None:
        """One that was evaluated; the same rev is given to another, and then the result comes."""
        self.dump()
        self.upload([(system_id, CLUSTERS[0], lost, "none")])
        self.lease(worker, 8)
        seen = len(self.results)
        for fetch in [fetch for fetch in self.fetches if fetch.worker == worker]:
            self.finish(fetch, is_kept=True, failing=None)
        self.restore()
        self.upload([(system_id, CLUSTERS[0], stored, "none")])
        for result in self.results[seen:]:
            self.send(result)

    # -- workers ---------------------------------------------------------------------------------

    @rule(worker=st.integers(0, 1), most=st.integers(1, 3))
    def lease(self, worker: int, most: int) -> None:
        holds_now = [partition for owner, partition in self.images if owner == worker]
        try:
            is_newer = worker == SPEAKS_SETS
            answer = leases.grant(
                self.workers[worker], most, holds_now, by_set=is_newer, brings_changes=is_newer
            ).answer
        except WorkerGone:
            self.register_again(worker)
            return
        named_set = answer.set if isinstance(answer.set, str) else None
        live = None if named_set is None else expression_sets.definitions(named_set)
        for leased in answer.leases:
            base = self.images.get((worker, leased.partition))
            named = answer.incarnation or ""
            definitions = answer.expressions
            self.fetches.append(Fetch(worker, named, leased, definitions, base, live=live))

    @rule(worker=st.integers(0, 1))
    def work(self, worker: int) -> None:
        """All that there is to do now, by a worker that keeps what it reads."""
        seen = len(self.fetches)
        self.lease(worker, 8)
        for fetch in self.fetches[seen:]:
            while not fetch.is_done:
                fetch.page(100)
            self.images[worker, fetch.lease.partition] = fetch.image()
            self.send((worker, fetch.incarnation, self.said(fetch, None)))
        del self.fetches[seen:]

    @precondition(lambda self: self.fetches)
    @rule(data=st.data(), max_nodes=st.integers(1, 4))
    def fetch(self, data: Any, max_nodes: int) -> None:
        fetch = data.draw(st.sampled_from(self.fetches))
        if not fetch.is_done:
            self.read(fetch, max_nodes)

    @precondition(lambda self: self.fetches)
    @rule(
        data=st.data(),
        is_kept=st.booleans(),
        failing=st.sampled_from([None] * 8 + DEFINITIONS[:1]),
    )
    def evaluate(self, data: Any, is_kept: bool, failing: str | None) -> None:
        self.finish(data.draw(st.sampled_from(self.fetches)), is_kept, failing)

    def finish(self, fetch: Fetch, is_kept: bool, failing: str | None) -> None:
        while not fetch.is_done:
            if not self.read(fetch, 100):
                return
        self.fetches.remove(fetch)
        if is_kept:
            self.images[fetch.worker, fetch.lease.partition] = fetch.image()
        self.results.append((fetch.worker, fetch.incarnation, self.said(fetch, failing)))

    @staticmethod
    def said(fetch: Fetch, failing: str | None) -> list[PartitionResult]:
        """One result, in the ways in which it may be sent."""
        plain = fetch.result(failing)
        return [plain] if fetch.live is None else [plain, fetch.result(failing, by_set=True)]

    @precondition(lambda self: self.results)
    @rule(data=st.data(), is_repeated=st.booleans())
    def complete(self, data: Any, is_repeated: bool) -> None:
        """Maybe late; kept for a second time maybe."""
        chosen = data.draw(st.sampled_from(self.results))
        self.send(chosen)
        if not is_repeated:
            self.results.remove(chosen)

    @precondition(lambda self: self.results)
    @rule()
    def lose_a_completion(self) -> None:
        self.results.pop(0)

    @precondition(lambda self: self.images)
    @rule()
    def forget_an_image(self) -> None:
        self.images.pop(next(iter(self.images)))

    @precondition(lambda self: self.fetches)
    @rule(data=st.data())
    def give_up(self, data: Any) -> None:
        fetch = data.draw(st.sampled_from(self.fetches))
        self.fetches.remove(fetch)
        leases.give_up(self.workers[fetch.worker], [fetch.lease.lease], "draining")

    @rule()
    def let_leases_expire(self) -> None:
        """End leases. Their workers do not know: what they were doing comes late."""
        with connection.cursor() as cursor:
            cursor.execute("UPDATE lease SET deadline = now() - interval '1 second'")
        leases.reap()

    @rule(worker=st.integers(0, 1))
    def renew_quotas(self, worker: int) -> None:
        """The worker has spent enough on other work: previews and changes come first again."""
        renewed = Worker.objects.filter(id=self.workers[worker].id)
        before = F("registered_at") - timedelta(seconds=1)
        renewed.update(preview_quota_until=before, change_quota_until=before)

    @rule()
    def maintain(self) -> None:
        maintenance.sweep()
        maintenance.collect_expressions()

    @rule(cluster=st.sampled_from(CLUSTERS))
    def compact(self, cluster: str) -> None:
        """Others come and go, and leave partitions that are full. What is not leased is evaluated;
        then nodes of sparse partitions move, and those that are empty go."""
        lshw = str(DOCUMENTS["gpu"]).encode()
        spare = [f"spare{number}" for number in range(SLOTS - 2)]
        ingest.store([Upload(name, cluster, probes={"lshw": lshw}) for name in spare])
        self.remember()
        ingest.delete_all([ingest.Deletion(each) for each in spare])
        self.remember()
        self.let_leases_expire()
        self.evaluate_all()
        before = self.places()
        Fleet.moved += compaction.run()
        self.remember(before)
        left = set(Partition.objects.values_list("id", flat=True))
        self.fetches = [fetch for fetch in self.fetches if fetch.lease.partition in left]

    @rule()
    def forget_sets(self) -> None:
        """Superseded sets are deleted, and the server is another, which has seen none."""
        ExpressionSet.objects.update(used_at=F("used_at") - timedelta(days=1))
        expression_sets.forget()
        expression_sets.kept.clear()

    def send(self, chosen: tuple[int, str, list[PartitionResult]]) -> None:
        worker, named, (plain, *by_set) = chosen
        for result in (*by_set, plain):
            try:
                completions.complete(self.workers[worker], Completion("", named, [result]))
                return
            except UnknownExpressionSet:
                assert result.set != plain.set
            except WorkerGone:
                self.register_again(worker)
                return

    def read(self, fetch: Fetch, most: int) -> bool:
        """Whether there was a page."""
        try:
            fetch.page(most)
        except WorkerGone:
            self.register_again(fetch.worker)
            return False
        return True

    def register_again(self, worker: int) -> None:
        """In another incarnation nothing that is held is good. Results that are done may still be
        sent, each as what it is."""
        before = self.workers[worker]
        said = Register(before.name, "model", "1")
        self.workers[worker] = made = workers.register(before.token, said)
        self.fetches = [fetch for fetch in self.fetches if fetch.worker != worker]
        if made.incarnation != before.incarnation:
            for key in [key for key in self.images if key[0] == worker]:
                del self.images[key]

    # -- what must hold --------------------------------------------------------------------------

    @staticmethod
    def places() -> dict[str, tuple[int, int]]:
        live = Node.objects.filter(deleted_at=None)
        return {node.system_id: (node.partition_id, node.slot) for node in live}

    def remember(self, before: dict[str, tuple[int, int]] | None = None) -> None:
        """The documents of each slot, with the rev from which on they are so. A node that moved
        from one of the places `before` brings what was true of it there along."""
        for node in Node.objects.select_related("partition").prefetch_related("documents"):
            probes = {} if node.deleted_at else {d.probe: d.xml for d in node.documents.all()}
            place = node.partition_id, node.slot
            versions = self.history.setdefault(place, [])
            old = (before or {}).get(node.system_id, place)
            if not versions and old != place and not node.deleted_at:
                versions += [(node.rev, had) for _, had in self.history[old] if had]
            if not versions or versions[-1][1] != probes:
                versions.append((node.rev, probes))
            assert node.rev <= node.partition.rev

    def every_match_is_true_at_its_rev_or_later(self, stored: Stored) -> None:
        for match in stored.rows:
            true_at = self.true_at(match)
            for (partition, slot), versions in self.history.items():
                if partition == match.partition_id:
                    possible = self.answers_since(match.expression__text, versions, true_at)
                    assert bool(match.members >> slot & 1) in possible

    @staticmethod
    def true_at(match: StoredMatch) -> int:
        for rev in (match.kept_rev, match.rev):
            if rev is not None:
                return rev
        assert match.partition__settled_rev <= match.partition__rev
        return match.partition__settled_rev

    @staticmethod
    def answers_since(text: str, versions: list[tuple[int, Probes]], rev: int) -> set[bool]:
        """What was true of a slot at `rev` or after it."""
        possible = {holds(text, probes) for since, probes in versions if since > rev}
        before = [probes for since, probes in versions if since <= rev]
        possible.add(holds(text, before[-1]) if before else False)
        return possible

    def a_tag_flips_only_when_it_is_evaluated_everywhere(self, stored: Stored) -> None:
        for tag in stored.tags:
            if tag.expression_id != self.published.get(tag.id) and tag.expression_id:
                revs = {
                    match.partition_id: match.partition__settled_rev
                    if match.rev is None
                    else match.rev
                    for match in stored.rows
                    if match.expression_id == tag.expression_id
                }
                for partition in stored.partitions:
                    assert revs[partition.id] >= self.targets[tag.id].get(partition.id, 0)
            self.published[tag.id] = tag.expression_id

    def is_as_before(self) -> bool:
        """Whether no row was written since the step before: what was true then still is."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_xact_user_tables"
            )
            (written,) = cursor.fetchone()
        before, self.written = self.written, written
        return bool(before == written)

    @invariant()
    def what_is_stored_is_true_and_shown(self) -> None:
        if self.is_as_before():
            return
        stored = Stored()
        self.every_match_is_true_at_its_rev_or_later(stored)
        self.a_tag_flips_only_when_it_is_evaluated_everywhere(stored)
        self.the_view_shows_the_bitmaps(stored)
        self.a_preview_shows_the_bitmaps(stored)
        self.an_expression_is_live_until_its_last_preview_ends(stored)
        self.a_partition_has_one_lease_at_most_and_no_slot_twice(stored)

    @staticmethod
    def the_view_shows_the_bitmaps(stored: Stored) -> None:
        expected = {
            (tag.id, node.id) for tag in stored.tags for node in stored.carriers(tag.expression_id)
        }
        assert stored.tagged == expected
        counts = freshness.status(stored.tags)
        assert counts.keys() == {tag.id for tag in stored.tags}
        for tag_id, status in counts.items():
            assert status.node_count == sum(found == tag_id for found, _ in expected)

    @staticmethod
    def a_preview_shows_the_bitmaps(stored: Stored) -> None:
        for preview in stored.previews:
            evaluated = stored.matches.get(preview.expression_id, {})
            live = [node for node in stored.live if node.partition_id in evaluated]
            members = {node.system_id for node in stored.carriers(preview.expression_id)}
            compared = preview.compare_to_id
            tagged = {node.system_id for node in live if (compared, node.id) in stored.tagged}
            found = previews.Membership(preview)
            counts = found.counts()
            assert counts.nodes == sum(item.nodes for _, item in found.clusters()) == len(members)
            changes: dict[previews.Change, set[str]] = {
                "members": members,
                "added": members - tagged,
                "removed": tagged - members,
            }
            for change, expected in changes.items():
                page = found.page(change, -1, 100)
                assert {node.system_id for node in page} == expected
                assert len(page) == len(expected)
            assert (counts.added, counts.removed) == (
                len(changes["added"]),
                len(changes["removed"]),
            )

    @staticmethod
    def an_expression_is_live_until_its_last_preview_ends(stored: Stored) -> None:
        for expression, preview_until in stored.preview_until.items():
            ends = [
                preview.expires_at
                for preview in stored.previews
                if preview.expression_id == expression
            ]
            assert preview_until == max(ends, default=None)

    @staticmethod
    def a_partition_has_one_lease_at_most_and_no_slot_twice(stored: Stored) -> None:
        assert Lease.objects.count() == queue.job_counts()["doing"]
        for partition in stored.partitions:
            nodes = [node for node in stored.nodes if node.partition_id == partition.id]
            assert len(nodes) == len({node.slot for node in nodes}) == partition.next_slot
            assert partition.node_count == sum(node.deleted_at is None for node in nodes)

    def what_is_settled_is_true(self, verdicts: list[Verdict]) -> None:
        """Whoever reads the answer to an upload finds its tags."""
        for verdict in verdicts:
            if not verdict.settled:
                continue
            node = Node.objects.get(system_id=verdict.system_id, deleted_at=None)
            probes = {document.probe: document.xml for document in node.documents.all()}
            found = set(NodeTag.objects.filter(node=node).values_list("tag_id", flat=True))
            for tag in Tag.objects.exclude(expression=None).filter(expression__failed_at=None):
                assert (tag.id in found) == holds(tag.expression.text, probes), tag.name

    # -- the end ---------------------------------------------------------------------------------

    def settle(self) -> None:
        """Lost work is found, and one honest worker does what there is."""
        self.fetches.clear()
        self.let_leases_expire()
        maintenance.sweep()
        self.evaluate_all()
        maintenance.sweep()
        assert queue.job_counts()["todo"] == queue.job_counts()["doing"] == 0

    def evaluate_all(self) -> None:
        self.register_again(0)
        for _ in range(200):
            answer = leases.grant(self.workers[0], 8, []).answer
            if not answer.leases:
                break
            for leased in answer.leases:
                named = answer.incarnation or ""
                fetch = Fetch(0, named, leased, answer.expressions, None)
                while not fetch.is_done:
                    fetch.page(3)
                self.send((0, named, [fetch.result(None)]))

    def everything_is_true(self) -> None:
        live = Node.objects.filter(deleted_at=None).prefetch_related("documents")
        probes = {node.id: {d.probe: d.xml for d in node.documents.all()} for node in live}
        failed = Expression.objects.exclude(failed_at=None)
        for tag in Tag.objects.exclude(Q(pending_expression__in=failed) | Q(expression__in=failed)):
            assert tag.expression is not None
            assert tag.pending_expression is None
            found = set(NodeTag.objects.filter(tag=tag).values_list("node_id", flat=True))
            assert found == {
                id for id, given in probes.items() if holds(tag.expression.text, given)
            }
            assert freshness.status([tag])[tag.id].state == "ready"
        assert not Rebuild.objects.filter(state="running").exists()
        for preview in Preview.objects.exclude(expression__in=failed):
            assert previews.progress([preview.uuid])[preview.uuid].state == "complete"
            counts = previews.Membership(preview).counts()
            text = preview.expression.text
            assert counts.nodes == sum(holds(text, given) for given in probes.values())
        self.the_audit_trail_adds_up()

    def the_audit_trail_adds_up(self) -> None:
        replayed: dict[tuple[int, int], int] = {}
        for change in MatchChange.objects.order_by("id"):
            key = change.expression_id, change.partition_id
            bits = replayed.get(key, 0)
            added, removed = bitmap.from_bytes(change.added), bitmap.from_bytes(change.removed)
            assert not bits & added
            assert bits & removed == removed
            replayed[key] = (bits | added) & ~removed
        for match in Match.objects.all():
            key = match.expression_id, match.partition_id
            assert replayed.get(key, 0) == bitmap.from_bytes(match.members)


@pytest.fixture
def small_partitions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TAGMILL_PARTITION_SLOTS", str(SLOTS))
    # Expressions are collected as soon as nothing refers to them.
    monkeypatch.setenv("TAGMILL_EXPRESSION_HOURS", "0")
    monkeypatch.setenv("TAGMILL_SETTLE_SECONDS", "5")
    monkeypatch.setenv("TAGMILL_COMPACT_BELOW", "0.75")
    config.load.cache_clear()
    yield
    monkeypatch.undo()
    config.load.cache_clear()


@pytest.mark.parametrize("walks", [8, pytest.param(32, marks=pytest.mark.proof)])
def test_tags_stay_true_whatever_happens(db: None, small_partitions: None, walks: int) -> None:
    run_state_machine_as_test(
        Fleet,
        settings=settings(
            max_examples=walks,
            stateful_step_count=60,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate,),
        ),
    )
    assert Fleet.moved
