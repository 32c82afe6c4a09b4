"""The fleet: clusters, partitions of slots, nodes and their documents.

Invariants (design section 2), held by `tagmill.flows.ingest`, the only writer:

- `node.rev <= partition.rev`, and rev order is commit order: every transaction that changes a node
  first raises its partition's `rev` under the row lock.
- A slot is handed out once and never reused; a deleted node stays as a tombstone with its rev.
- Locks are always taken in the order that `tagmill.locks` says, by its helpers.
"""

from __future__ import annotations

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from tagmill.fleet import at_rest


class Incarnation(models.Model):
    """Which history of this database the revs belong to: one row (see `fleet.incarnation`).

    The view `database_history` names the history that PostgreSQL is in; `current_incarnation` has
    this row's uuid while that is the one noted here, and no row after a restore or a failover.
    """

    id = models.SmallIntegerField(primary_key=True, default=1)
    uuid = models.UUIDField(default=uuid.uuid4, editable=False)
    history = models.TextField(editable=False)
    since = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        db_table = "incarnation"
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="incarnation_is_one")]

    def __str__(self) -> str:
        return str(self.uuid)


class Cluster(models.Model):
    """A site. Workers are authorised per cluster."""

    uuid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=256, unique=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        db_table = "cluster"
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Partition(models.Model):
    """Up to `capacity` slots of one cluster, with one revision. `capacity` never changes."""

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="partitions")
    number = models.PositiveIntegerField(help_text="1, 2, 3, ... within the cluster")
    rev = models.BigIntegerField(db_default=0)
    settled_rev = models.BigIntegerField(
        db_default=0, help_text="what its settled matches are true at; never above rev"
    )
    settled_at = models.DateTimeField(
        db_default=Now(), editable=False, help_text="when settled_rev was last moved"
    )
    capacity = models.PositiveIntegerField(help_text="slots; a multiple of 8")
    next_slot = models.PositiveIntegerField(db_default=0)
    node_count = models.PositiveIntegerField(db_default=0, help_text="live nodes")

    class Meta:
        db_table = "partition"
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "number"], name="partition_number"),
            models.CheckConstraint(
                condition=models.Q(next_slot__lte=models.F("capacity")), name="partition_capacity"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.cluster_id}/{self.number}"


class PastPartition(models.Model):
    """What the slots of a partition were called that is gone: the trail names slots. It is kept as
    long as changes are."""

    id = models.BigIntegerField(primary_key=True, help_text="the partition's, never used again")
    cluster = models.CharField(max_length=256, help_text="its name when the partition went")
    names = ArrayField(models.CharField(max_length=64, null=True), help_text="system_ids by slot")
    gone_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        db_table = "past_partition"

    def __str__(self) -> str:
        return f"{self.cluster}/{self.id}"


class Vocabulary(models.Model):
    """What the documents of a partition contain, as of `rev`, for lint. A cache: it may be lost.

    Changes of nodes only add to it; what has vanished stays until it is learnt anew.
    """

    partition = models.OneToOneField(
        Partition, primary_key=True, on_delete=models.CASCADE, related_name="vocabulary"
    )
    rev = models.BigIntegerField()
    version = models.PositiveSmallIntegerField(help_text="of the format of `data`")
    documents = models.PositiveIntegerField(help_text="learnt from; a changed one counts again")
    data = models.BinaryField(help_text="tagmill_expressions.vocabulary.Vocabulary.dump, by zstd")

    class Meta:
        db_table = "vocabulary"


class Node(models.Model):
    """A machine, or the tombstone of one (`deleted_at` set)."""

    system_id = models.CharField(max_length=64)
    hostname = models.CharField(max_length=255, db_default="")
    kind = models.CharField(max_length=32, db_default="machine")
    partition = models.ForeignKey(Partition, on_delete=models.PROTECT, related_name="nodes")
    slot = models.PositiveIntegerField()
    rev = models.BigIntegerField(help_text="the partition's rev at this node's last change")
    digest = models.BinaryField(
        max_length=32, db_default=b"", help_text="SHA-256 over all documents; empty without any"
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    updated_at = models.DateTimeField(db_default=Now(), editable=False)
    deleted_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        db_table = "node"
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["partition", "slot"], name="node_slot"),
            models.UniqueConstraint(
                fields=["system_id"],
                condition=models.Q(deleted_at__isnull=True),
                name="node_live_system_id",
            ),
        ]
        indexes = [
            models.Index(fields=["partition", "rev"], name="node_partition_rev"),
            models.Index(
                fields=["partition", "rev"],
                condition=models.Q(deleted_at__isnull=False),
                name="node_tombstone_rev",
            ),
            models.Index(
                fields=["hostname"],
                condition=models.Q(deleted_at__isnull=True),
                name="node_live_hostname",
            ),
        ]

    def __str__(self) -> str:
        return self.system_id


class DocumentDictionary(models.Model):
    """What documents of one probe in one cluster have in common, for zstd. Immutable; never deleted
    while a document names it, which its foreign key holds."""

    # Not a serial: it means the same in every history of the database.
    id = models.BigIntegerField(primary_key=True, help_text="of `data`, see at_rest.identity")
    cluster = models.ForeignKey(
        Cluster, null=True, on_delete=models.SET_NULL, related_name="dictionaries"
    )
    probe = models.CharField(max_length=64)
    version = models.PositiveIntegerField(help_text="1, 2, 3, ...; the highest packs")
    data = models.BinaryField()
    ratio = models.FloatField(help_text="packed bytes a byte of XML: what it is measured against")
    ratio_now = models.FloatField(help_text="the same at the last look")
    trained_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        db_table = "document_dictionary"
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "probe", "version"], name="document_dictionary_version"
            )
        ]

    def __str__(self) -> str:
        return f"{self.cluster_id}/{self.probe}/{self.version}"


class DocumentLook(models.Model):
    """When a cluster's documents were last looked at for dictionaries; how many nodes it had."""

    cluster = models.OneToOneField(
        Cluster, primary_key=True, on_delete=models.CASCADE, related_name="document_look"
    )
    looked_at = models.DateTimeField(db_default=Now())
    nodes = models.PositiveIntegerField()

    class Meta:
        db_table = "document_look"


class DocumentPacking(models.Model):
    """How far stored documents are packed anew with the dictionaries of today: one row.

    `node` and `probe` are those of the last document that was seen; no node: nothing is to be done.
    """

    id = models.SmallIntegerField(primary_key=True, default=1)
    not_before = models.DateTimeField(
        db_default=Now(), help_text="no document is packed earlier, nor a dictionary trained"
    )
    node = models.BigIntegerField(null=True)
    probe = models.CharField(max_length=64, db_default="")
    left = models.BigIntegerField(db_default=0, help_text="documents not seen yet, about")
    damaged = models.BigIntegerField(db_default=0, help_text="documents that could not be read")

    class Meta:
        db_table = "document_packing"
        constraints = [
            models.CheckConstraint(condition=models.Q(id=1), name="document_packing_is_one")
        ]


class Document(models.Model):
    """The XML that one probe printed for one node: UTF-8, without an XML declaration. It is stored
    as `fleet.at_rest` says: packed, with the dictionary that it names, or as XML."""

    pk = models.CompositePrimaryKey("node_id", "probe")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="documents")
    probe = models.CharField(max_length=64, help_text="lshw, lldp, ...")
    plain = models.TextField(null=True, db_column="xml", help_text="null where it is packed")
    packed = models.BinaryField(null=True, help_text="by zstd; in the row where it fits")
    # Nobody asks for the documents of a dictionary but who deletes one.
    dictionary = models.ForeignKey(
        DocumentDictionary, null=True, on_delete=models.DO_NOTHING, db_index=False
    )
    size = models.PositiveIntegerField(help_text="bytes of xml in UTF-8")
    digest = models.BinaryField(max_length=32, help_text="SHA-256 of xml")
    uploaded_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        db_table = "document"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(plain=None, packed__isnull=False, dictionary__isnull=False)
                | models.Q(plain__isnull=False, packed=None, dictionary=None),
                name="document_is_stored_once",
            )
        ]

    @property
    def xml(self) -> str:
        """Raises DocumentDamaged."""
        packed = None if self.packed is None else bytes(self.packed)
        return at_rest.unpack(at_rest.AtRest(self.plain, packed, self.dictionary_id, self.size))


class SharedImage(models.Model):
    """An image of a partition that a worker shared, in the image store (`fleet.images`). A cache:
    rows and files may be lost. The newest of each schema is kept."""

    partition = models.ForeignKey(Partition, on_delete=models.CASCADE, related_name="images")
    schema = models.CharField(max_length=64, help_text="what made it: workers read their own")
    incarnation = models.UUIDField(help_text="of the database; those of others are deleted")
    rev = models.BigIntegerField(help_text="the partition's, with it; never above it")
    digest = models.CharField(max_length=64, help_text="BLAKE2b of the file, in hexadecimal digits")
    size = models.BigIntegerField(help_text="bytes of the file")
    file = models.CharField(max_length=255, unique=True, help_text="its name in the image store")
    stored_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        db_table = "shared_image"
        constraints = [
            models.UniqueConstraint(fields=["partition", "schema"], name="shared_image_newest")
        ]

    def __str__(self) -> str:
        return self.file
