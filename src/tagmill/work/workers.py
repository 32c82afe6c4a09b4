"""Worker tokens, and the workers that registered with them."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Literal, NamedTuple, Protocol
from uuid import UUID

import structlog
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from tagmill import locks, sql
from tagmill.config import load
from tagmill.errors import AlreadyExists, Invalid, NotFound, WorkerGone
from tagmill.fleet import incarnation
from tagmill.fleet.models import Cluster, Partition
from tagmill.work.models import Worker, WorkerToken
from tagmill_wire.messages import Register

log = structlog.get_logger("tagmill.workers")

TOKEN = re.compile(r"tmw_([0-9a-f]{16})_([A-Za-z0-9_-]{20,100})")
LOOKUP_BYTES = 8
SECRET_BYTES = 32
NAME_LENGTH = 256
SHORT_LENGTH = {"evaluator": 32, "version": 64}
MAX_PID = 2**31 - 1
# A worker silent for this many leases is forgotten; it registers again when it comes back.
SILENT_LEASES = 3


def issue_token(name: str, clusters: Sequence[Cluster] | Literal["all"]) -> tuple[WorkerToken, str]:
    """A token for these clusters ("all": also those made later) and its plaintext, which is not
    stored. Raises AlreadyExists, Invalid."""
    if not name.strip() or not name.isprintable() or len(name) > NAME_LENGTH:
        raise Invalid("a token's name is one line of text", field="name")
    chosen = None if clusters == "all" else list(clusters)
    if chosen == []:
        raise Invalid("name the clusters that the token is for", field="clusters")
    lookup, secret = secrets.token_hex(LOOKUP_BYTES), secrets.token_urlsafe(SECRET_BYTES)
    try:
        with transaction.atomic():
            token = WorkerToken.objects.create(
                name=name, lookup=lookup, secret_digest=_digest(secret), all_clusters=chosen is None
            )
            if chosen is not None:
                token.clusters.set(chosen)
    except IntegrityError:
        raise AlreadyExists(f"there is a worker token {name!r} already", field="name") from None
    return token, f"tmw_{lookup}_{secret}"


class Asking(Protocol):
    """A worker that has shown its token: `Caller`, or its row. `cluster_ids`: those that it may
    answer for; None: all, also those made later."""

    @property
    def id(self) -> int: ...
    @property
    def uuid(self) -> UUID: ...
    @property
    def name(self) -> str: ...
    @property
    def token_name(self) -> str: ...
    @property
    def cluster_ids(self) -> list[int] | None: ...


class Caller(NamedTuple):
    """Who sends a request. `leases`: all that it has."""

    id: int
    uuid: UUID
    name: str
    token_name: str
    cluster_ids: list[int] | None
    leases: list[UUID]


class _Found(NamedTuple):
    token: int
    known_as: str
    digest: bytes
    is_revoked: bool
    cluster_ids: list[int] | None
    worker: int | None
    uuid: UUID | None
    name: str | None
    leases: list[UUID]


def call(token: str, worker: UUID) -> Caller | None:
    """The worker, if it registered with this token; None when the token is wrong or revoked. One
    statement, each time: a token that is revoked is good for nothing from then on. Raises
    WorkerGone."""
    given = presented(token)
    if given is None:
        return None
    values = {"lookup": given.lookup, "worker": worker}
    found = next(iter(sql.bound(_Found, __file__, "caller", values)), None)
    if found is None:
        is_good(given, None)
        return None
    if not is_good(given, found.digest, found.known_as, is_revoked=found.is_revoked):
        return None
    if found.worker is None or found.uuid is None or found.name is None:
        raise WorkerGone("no such worker: register again")
    return Caller(
        found.worker, found.uuid, found.name, found.known_as, found.cluster_ids, found.leases
    )


class Presented(NamedTuple):
    """A token as a client sends it, in its parts: `lookup` finds its row."""

    lookup: str
    secret: str


def presented(token: str) -> Presented | None:
    """None for what is no worker token."""
    parts = TOKEN.fullmatch(token)
    if parts is None:
        _refuse("it is no worker token, as tmw_...")
        return None
    return Presented(parts[1], parts[2])


def is_good(
    given: Presented, digest: bytes | None, known_as: str = "", *, is_revoked: bool = False
) -> bool:
    """Whether the token's secret is that of the digest (None: there is none). It is compared in
    constant time, and against something also when there is no such token."""
    expected = digest if digest is not None else b"\0" * hashlib.sha256().digest_size
    is_right = hmac.compare_digest(expected, _digest(given.secret))
    if digest is None:
        _refuse("no token has this lookup", given.lookup)
    elif not is_right:
        _refuse("its secret is wrong", given.lookup, known_as)
    elif is_revoked:
        _refuse("it was revoked", given.lookup, known_as)
    else:
        return True
    return False


def authenticate(token: str) -> WorkerToken | None:
    """The token's row; None when it is wrong or revoked."""
    given = presented(token)
    if given is None:
        return None
    found = WorkerToken.objects.filter(lookup=given.lookup).first()
    if found is None:
        is_good(given, None)
        return None
    digest, is_revoked = bytes(found.secret_digest), found.revoked_at is not None
    return found if is_good(given, digest, found.name, is_revoked=is_revoked) else None


def clusters_of(token: WorkerToken) -> QuerySet[Cluster] | None:
    """The clusters that the token may read and answer for, by name. None: all, also those made
    later."""
    return None if token.all_clusters else token.clusters.all()


def readable(token: WorkerToken, partitions: QuerySet[Partition]) -> QuerySet[Partition]:
    """The partitions that a token may read: those of its clusters."""
    clusters = clusters_of(token)
    return partitions if clusters is None else partitions.filter(cluster__in=clusters)


def may_read(token: WorkerToken, partition: int) -> bool:
    """Whether it is of the token's clusters; a token for all of them may ask for any number."""
    rows = Partition.objects.filter(id=partition)
    return token.all_clusters or readable(token, rows).exists()


def revoke(key: str) -> int:
    """Workers that use the token, by its name or its lookup, stop at their next request. How many
    were revoked by this: 0 for one that was before. Raises NotFound."""
    found = WorkerToken.objects.filter(Q(name=key) | Q(lookup=key))
    if not found.exists():
        raise NotFound(f"there is no worker token {key!r}")
    return found.filter(revoked_at=None).update(revoked_at=Now())


def _refuse(why: str, lookup: str = "", name: str = "") -> None:
    """Log why a token is refused, for the operator: the client does not learn what is wrong."""
    log.info(
        "a worker's token is refused",
        action="worker_refused",
        why=why,
        lookup=lookup,
        known_as=name,
    )


def register(token: WorkerToken, said: Register) -> Worker:
    """Raises Invalid."""
    try:
        _check(said)
    except Invalid as error:
        why = f"{error.extra['field']}: {error.detail}"
        log.info("a worker is refused", action="worker_refused", why=why, known_as=token.name)
        raise
    return Worker.objects.create(
        incarnation=incarnation.current(),
        token=token,
        name=said.name,
        evaluator=said.evaluator,
        version=said.version,
        host=said.host,
        pid=said.pid,
    )


def _check(said: Register) -> None:
    """Raises Invalid."""
    for field, limit in {"name": NAME_LENGTH, **SHORT_LENGTH}.items():
        value = getattr(said, field)
        if not value or len(value) > limit or not value.isprintable():
            raise Invalid(f"must be 1 to {limit} printable characters", field=field)
    if len(said.host) > NAME_LENGTH or not said.host.isprintable():
        raise Invalid(f"must be at most {NAME_LENGTH} printable characters", field="host")
    if not 0 <= said.pid <= MAX_PID:
        raise Invalid("must be the number of a process", field="pid")


def get(uuid: UUID, token: WorkerToken) -> Worker:
    """The worker, if it registered with this token. Raises WorkerGone."""
    found = Worker.objects.select_related("token").filter(uuid=uuid, token=token).first()
    if found is None:
        raise WorkerGone("no such worker: register again")
    return found


def live(clusters: Collection[int], but: int | None = None) -> int:
    """How many workers were heard of within a lease's time, and may take work of one of these
    clusters; the worker `but` is not counted."""
    values = {"clusters": sorted(clusters), "seconds": load().lease_seconds, "but": but}
    (count,) = sql.bound(int, __file__, "live_workers_of", values)
    return count


def prune() -> int:
    """Forget workers that have been silent for long; how many. One that has a lease is kept until
    the reaper has taken it."""
    silence = timedelta(seconds=SILENT_LEASES * load().lease_seconds)
    silent = Worker.objects.filter(last_heartbeat__lt=Now() - silence, leases=None)
    with transaction.atomic():
        # One that speaks up at this moment, and may be given a lease, has locked its row.
        ids = [row.id for row in locks.rows(silent, to_delete=True, skip_locked=True)]
        return Worker.objects.filter(id__in=ids).delete()[0]


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
