"""Worker tokens and registrations."""

from __future__ import annotations

from uuid import uuid4

import pytest
import structlog
from django.db.models.functions import Now

from tagmill.errors import AlreadyExists, Invalid, NotFound, WorkerGone
from tagmill.fleet import clusters
from tagmill.fleet.models import Partition
from tagmill.tags import tags
from tagmill.work import leases, workers
from tagmill.work.models import Worker, WorkerToken
from tagmill_wire.messages import Register
from tests.support.fleet import HAS_GPU, north, put
from tests.support.sql import execute
from tests.support.workers import a_worker, lease_one

pytestmark = pytest.mark.django_db


def test_a_token_authenticates_until_it_is_revoked() -> None:
    token, text = workers.issue_token("rack", "all")
    assert workers.authenticate(text) == token
    assert text.split("_")[2] not in str(WorkerToken.objects.values().get())
    WorkerToken.objects.update(revoked_at=Now())
    assert workers.authenticate(text) is None


def test_a_revoked_token_leaves_its_name_to_the_next() -> None:
    _, first = workers.issue_token("rack", "all")
    assert workers.revoke("rack") == 1
    _, second = workers.issue_token("rack", "all")
    assert workers.authenticate(first) is None and workers.authenticate(second) is not None
    assert workers.revoke(first.split("_")[1]) == 0
    with pytest.raises(NotFound):
        workers.revoke("shelf")


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("", "it is no worker token, as tmw_..."),
        ("tmw_0000000000000000_" + "x" * 43, "no token has this lookup"),
        ("revoked", "it was revoked"),
        ("altered", "its secret is wrong"),
    ],
)
def test_a_refused_token_is_logged_with_the_reason_and_without_its_secret(
    token: str, why: str
) -> None:
    _, real = workers.issue_token("rack", "all")
    if token == "revoked":
        workers.revoke("rack")
    given = {"revoked": real, "altered": real[:-1]}.get(token, token)
    with structlog.testing.capture_logs() as lines:
        assert workers.authenticate(given) is None
    (line,) = lines
    assert (line["log_level"], line["action"], line["why"]) == ("info", "worker_refused", why)
    assert real.split("_", 2)[2][:20] not in str(line)


def test_a_refused_registration_is_logged_with_the_reason() -> None:
    token, _ = workers.issue_token("rack", "all")
    with structlog.testing.capture_logs() as lines, pytest.raises(Invalid):
        workers.register(token, Register("", "lxml", "1"))
    (line,) = lines
    assert (line["log_level"], line["action"], line["known_as"]) == (
        "info",
        "worker_refused",
        "rack",
    )
    assert line["why"].startswith("name: ")


def test_what_is_not_the_token_does_not_authenticate() -> None:
    _, text = workers.issue_token("rack", "all")
    _, other = workers.issue_token("shelf", "all")
    _, lookup, secret = text.split("_", 2)
    _, _, wrong = other.split("_", 2)
    for bad in (
        f"tmw_{lookup}_{wrong}",
        f"tmw_{lookup}_{secret}x",
        f"tmw_{lookup}_{secret[:-1]}",
        f"tmw_{'0' * 16}_{secret}",
        f"tmw_{lookup.upper()}_{secret}",
        f"{text}\n",
        lookup,
        "",
        "tmw__",
        "tmw_\0_\0",
        "x" * 100_000,
    ):
        assert workers.authenticate(bad) is None, bad[:80]


def test_a_token_names_clusters_or_all_of_them() -> None:
    north = clusters.create("north")
    token, _ = workers.issue_token("rack", [north])
    clusters.create("south")
    assert list(workers.clusters_of(token) or ()) == [north]
    with pytest.raises(AlreadyExists):
        workers.issue_token("rack", "all")
    for name, chosen in (("none", []), ("", [north]), ("a\nb", [north]), ("x" * 257, [north])):
        with pytest.raises(Invalid):
            workers.issue_token(name, chosen)


def test_a_token_reads_the_partitions_of_its_clusters() -> None:
    north, south = clusters.create("north"), clusters.create("south")
    put("a", cluster="north")
    put("b", cluster="south")
    token, _ = workers.issue_token("rack", [north])
    every, _ = workers.issue_token("every", "all")
    assert {row.cluster for row in workers.readable(token, Partition.objects.all())} == {north}
    found = {row.cluster for row in workers.readable(every, Partition.objects.all())}
    assert found == {north, south} and workers.clusters_of(every) is None


def test_a_worker_is_known_to_its_own_token_only() -> None:
    worker = a_worker()
    other, _ = workers.issue_token("other", "all")
    assert workers.get(worker.uuid, worker.token) == worker
    for uuid, token in ((worker.uuid, other), (uuid4(), worker.token)):
        with pytest.raises(WorkerGone):
            workers.get(uuid, token)


@pytest.mark.parametrize(
    ("field", "value"), [("name", ""), ("name", "a\nb"), ("evaluator", "x" * 33), ("version", "")]
)
def test_what_a_worker_says_of_itself_is_checked(field: str, value: str) -> None:
    token, _ = workers.issue_token("rack", "all")
    said = {"name": "w", "evaluator": "lxml", "version": "1", field: value}
    with pytest.raises(Invalid) as caught:
        workers.register(token, Register(**said))
    assert caught.value.extra["field"] == field


def test_silent_workers_are_forgotten_unless_they_have_a_lease() -> None:
    north("a")
    tags.create("gpu", definition=HAS_GPU)
    silent, leased, loud = a_worker(name="s"), a_worker(name="l"), a_worker(name="x")
    lease_one(leased)
    execute(
        "UPDATE worker SET last_heartbeat = now() - interval '1 hour' WHERE id = ANY(%s)",
        [[silent.id, leased.id]],
    )
    assert workers.prune() == 1
    assert set(Worker.objects.all()) == {leased, loud}
    execute("UPDATE lease SET deadline = now() - interval '1 second'")
    leases.reap()
    assert workers.prune() == 1
    assert list(Worker.objects.all()) == [loud]


def test_a_forgotten_worker_is_told_so() -> None:
    worker = a_worker()
    Worker.objects.all().delete()
    with pytest.raises(WorkerGone):
        leases.grant(worker, 1, [])
    with pytest.raises(WorkerGone):
        leases.heartbeat(worker, [])
