"""Workers, their tokens, what they should hold, and the leases under which they evaluate it."""

from __future__ import annotations

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from tagmill.fleet.models import Cluster, Partition


class WorkerToken(models.Model):
    """What a worker authenticates with: bound to clusters, good for nothing else.

    The token is `tmw_<lookup>_<secret>`; only `lookup` and the SHA-256 of the secret are stored.
    """

    name = models.CharField(max_length=256)
    lookup = models.CharField(max_length=16, unique=True, editable=False)
    secret_digest = models.BinaryField(max_length=32, editable=False)
    clusters = models.ManyToManyField(
        Cluster,
        blank=True,
        related_name="worker_tokens",
        db_table="worker_token_cluster",
        help_text="the clusters it may read and answer for",
    )
    all_clusters = models.BooleanField(default=False, help_text="also those made later")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "worker_token"
        ordering = ["name"]
        constraints = [
            # One that is revoked stays for the record, and leaves its name to the next.
            models.UniqueConstraint(
                fields=["name"],
                condition=models.Q(revoked_at=None),
                name="worker_token_name",
                violation_error_message="there is a worker token of this name already: revoke it",
            )
        ]

    def __str__(self) -> str:
        return self.name


class Worker(models.Model):
    """One running worker process, as it registered itself. Deleted when it stays silent.

    What it holds and is leased belongs to one incarnation of the database (`fleet.incarnation`).
    """

    uuid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    incarnation = models.UUIDField(
        editable=False, help_text="the database's when it registered: in another it is void"
    )
    token = models.ForeignKey(WorkerToken, on_delete=models.CASCADE, related_name="workers")
    name = models.CharField(max_length=256)
    evaluator = models.CharField(max_length=32)
    version = models.CharField(max_length=64)
    host = models.CharField(max_length=256, db_default="", help_text="empty: it did not say")
    pid = models.IntegerField(db_default=0)
    registered_at = models.DateTimeField(db_default=Now(), editable=False)
    last_heartbeat = models.DateTimeField(db_default=Now(), editable=False)
    room = models.BigIntegerField(
        db_default=0, editable=False, help_text="bytes that it can hold; 0: it is to own nothing"
    )
    is_ready = models.BooleanField(
        db_default=False, editable=False, help_text="it has warmed what it was to own when it came"
    )
    done_seconds = models.FloatField(
        db_default=0, editable=False, help_text="that the counts are of; 0: it did not say"
    )
    done_partitions = models.BigIntegerField(db_default=0, editable=False)
    done_documents = models.BigIntegerField(db_default=0, editable=False)
    preview_quota_until = models.DateTimeField(
        db_default=Now(), editable=False, help_text="its quota for previews is spent until then"
    )
    change_quota_until = models.DateTimeField(
        db_default=Now(), editable=False, help_text="its quota for changes is spent until then"
    )
    definition_quota_until = models.DateTimeField(
        db_default=Now(), editable=False, help_text="its quota for definitions is spent until then"
    )

    @property
    def token_name(self) -> str:
        return self.token.name

    @property
    def cluster_ids(self) -> list[int] | None:
        """The clusters that it may answer for; None: all, also those made later."""
        if self.token.all_clusters:
            return None
        return list(self.token.clusters.order_by("id").values_list("id", flat=True))

    class Meta:
        db_table = "worker"
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Placement(models.Model):
    """Which worker should hold which partition of a cluster (`tagmill.work.placement`), as of
    `epoch`. Written under the lock of the membership alone; a preference, and a cache: it may be
    lost. Workers and partitions that have gone since may be among its numbers.
    """

    cluster = models.OneToOneField(
        Cluster, primary_key=True, on_delete=models.CASCADE, related_name="placement"
    )
    epoch = models.BigIntegerField(help_text="of the last change; it grows in commit order")
    partitions = ArrayField(models.BigIntegerField())
    owners = ArrayField(models.BigIntegerField(), help_text="the worker that is to hold each")
    counting = ArrayField(
        models.BigIntegerField(), help_text="the worker that is preferred for each meanwhile"
    )
    silent_since = models.DateTimeField(
        null=True, help_text="since when more than half of its workers have been silent"
    )

    class Meta:
        db_table = "placement"


class Lease(models.Model):
    """A worker's hold on one partition's job until `deadline`, by the database's clock.

    At most one per partition: the job's Procrastinate `lock` is the partition.
    """

    uuid = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    worker = models.ForeignKey(Worker, on_delete=models.CASCADE, related_name="leases")
    partition = models.OneToOneField(Partition, on_delete=models.CASCADE, related_name="lease")
    job_id = models.BigIntegerField(unique=True)
    rev = models.BigIntegerField(help_text="the partition's rev when it was leased")
    kind = models.PositiveSmallIntegerField(
        db_default=1, help_text="0 vocabularies, 1 all, 2 changes, 4 previews, 8 new definitions"
    )
    leased_at = models.DateTimeField(db_default=Now(), editable=False)
    deadline = models.DateTimeField()

    class Meta:
        db_table = "lease"
        indexes = [models.Index(fields=["deadline"], name="lease_deadline")]


class Sample(models.Model):
    """The fleet at one moment, for charts of the last hours. Written now and then; older ones are
    deleted."""

    at = models.DateTimeField(db_default=Now(), unique=True)
    nodes = models.BigIntegerField()
    stale = models.BigIntegerField(help_text="matches that wait for evaluation")
    jobs = models.BigIntegerField(help_text="partitions that wait for a worker")
    leases = models.BigIntegerField(help_text="partitions that a worker is at")
    workers = models.BigIntegerField(help_text="workers that were heard of")
    changes = models.BigIntegerField(help_text="of partitions since the sample before")
    verdicts = models.BigIntegerField(help_text="by workers since the sample before")
    revs = models.BigIntegerField(help_text="the sum of all revs, which the next one counts from")

    class Meta:
        db_table = "fleet_sample"

    def __str__(self) -> str:
        return str(self.at)


class WorkTrace(models.Model):
    """The request that made the work of a partition, while traces are on (`work.traces`)."""

    partition_id = models.BigIntegerField(primary_key=True)
    place = models.CharField(max_length=64, help_text="W3C traceparent")
    at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        db_table = "work_trace"

    def __str__(self) -> str:
        return self.place
