"""Tags, their expressions, and the matches that say which slots an expression holds on.

A match is a pure function of (expression, partition, rev): it can be lost, repeated or recomputed
at will. It is fresh when `match.rev == partition.rev`; a missing row is stale.

Bitmaps are `capacity / 8` bytes; slot n is bit `n % 8` (least significant first) of byte `n // 8`,
which is what PostgreSQL's `get_bit(bytea, n)` reads and what
`int.from_bytes(b, "little") >> n & 1` is.
"""

from __future__ import annotations

import uuid

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import BrinIndex
from django.core.validators import RegexValidator
from django.db import models
from django.db.models.functions import Now

from tagmill.fleet.models import Node, Partition

TAG_NAME = r"[A-Za-z0-9_-]{1,256}"


class Expression(models.Model):
    """Immutable text. Unreferenced ones are collected an hour after their last use."""

    text = models.TextField()
    namespaces = models.JSONField(default=dict, help_text="prefix to namespace URI")
    digest = models.BinaryField(
        max_length=32, unique=True, help_text="SHA-256 of the canonical [text, namespaces]"
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    used_at = models.DateTimeField(
        db_default=Now(), help_text="last time a tag or preview named it"
    )
    named_at = models.DateTimeField(
        null=True, help_text="when a tag named it first; null: previews only"
    )
    preview_until = models.DateTimeField(null=True, help_text="a live preview counts until then")
    attempts = models.PositiveSmallIntegerField(db_default=0, help_text="failures in a row")
    failed_by = ArrayField(
        models.BigIntegerField(), db_default=[], help_text="the workers of those failures"
    )
    attempted_at = models.DateTimeField(null=True, help_text="the last failed evaluation")
    failed_at = models.DateTimeField(null=True)
    failure = models.TextField(db_default="", help_text="why it failed; empty while it has not")

    class Meta:
        db_table = "expression"

    def __str__(self) -> str:
        return self.text


class Tag(models.Model):
    """A name for an expression; without one (neither published nor pending) it is a manual tag."""

    name = models.CharField(
        max_length=256, unique=True, validators=[RegexValidator(rf"\A{TAG_NAME}\Z")]
    )
    expression = models.ForeignKey(
        Expression, null=True, on_delete=models.PROTECT, related_name="published_tags"
    )
    pending_expression = models.ForeignKey(
        Expression, null=True, on_delete=models.PROTECT, related_name="pending_tags"
    )
    comment = models.TextField(blank=True, db_default="")
    kernel_opts = models.TextField(blank=True, db_default="")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    updated_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        db_table = "tag"
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Match(models.Model):
    """Where `expression` holds in `partition`, as of `rev`. Replaced only by a higher rev.

    A forced rebuild sets `rev` to -1 and keeps `members` and, in `kept_rev`, the rev at which they
    were true.
    """

    pk = models.CompositePrimaryKey("expression_id", "partition_id")
    expression = models.ForeignKey(Expression, on_delete=models.CASCADE, related_name="matches")
    partition = models.ForeignKey(Partition, on_delete=models.CASCADE, related_name="matches")
    rev = models.BigIntegerField()
    kept_rev = models.BigIntegerField(null=True)
    members = models.BinaryField()
    evaluated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "match"
        indexes = [models.Index(fields=["partition", "rev"], name="match_partition_rev")]


class Assignment(models.Model):
    """Where a manual tag was set by hand. Bits of deleted nodes are cleared with the node."""

    pk = models.CompositePrimaryKey("tag_id", "partition_id")
    tag = models.ForeignKey(Tag, on_delete=models.CASCADE, related_name="assignments")
    partition = models.ForeignKey(Partition, on_delete=models.CASCADE, related_name="assignments")
    members = models.BinaryField()

    class Meta:
        db_table = "assignment"


class MatchChange(models.Model):
    """The audit trail: what an accepted evaluation changed. Append only."""

    expression = models.ForeignKey(
        Expression, on_delete=models.CASCADE, related_name="changes", db_constraint=False
    )
    partition = models.ForeignKey(
        Partition, on_delete=models.CASCADE, related_name="changes", db_constraint=False
    )
    from_rev = models.BigIntegerField(null=True, help_text="null: evaluated for the first time")
    to_rev = models.BigIntegerField()
    added = models.BinaryField()
    removed = models.BinaryField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "match_change"
        indexes = [
            models.Index(fields=["expression", "id"], name="match_change_expression"),
            BrinIndex(fields=["at"], name="match_change_at"),
        ]


class AssignmentChange(models.Model):
    """What somebody assigned by hand, and took away. Append only."""

    tag = models.ForeignKey(Tag, on_delete=models.DO_NOTHING, related_name="+", db_constraint=False)
    partition = models.ForeignKey(
        Partition, on_delete=models.DO_NOTHING, related_name="+", db_constraint=False
    )
    added = models.BinaryField()
    removed = models.BinaryField()
    actor = models.CharField(max_length=256, db_default="")
    at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "assignment_change"
        indexes = [
            models.Index(fields=["tag", "id"], name="assignment_change_tag"),
            BrinIndex(fields=["at"], name="assignment_change_at"),
        ]


class Preview(models.Model):
    """A definition that somebody looks at before a tag has it. One for each client of a user.

    While one is there, its expression is evaluated like a tag's: `expression.preview_until` is the
    last `expires_at` of its previews, null without any. It is complete when every match has reached
    its target, and stays so.
    """

    uuid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+"
    )
    client = models.CharField(max_length=256)
    expression = models.ForeignKey(Expression, on_delete=models.PROTECT, related_name="previews")
    compare_to = models.ForeignKey(Tag, null=True, on_delete=models.SET_NULL, related_name="+")
    targets = models.JSONField(default=dict, help_text="partition to its rev at the request")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField()
    completed_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "preview"
        constraints = [
            models.UniqueConstraint(fields=["requested_by", "client"], name="preview_client")
        ]


class NodeTag(models.Model):
    """The view `node_tag`: one row for each live node and each tag it carries. Read only."""

    pk = models.CompositePrimaryKey("node_id", "tag_id")
    node = models.ForeignKey(Node, on_delete=models.DO_NOTHING)
    tag = models.ForeignKey(Tag, on_delete=models.DO_NOTHING)

    class Meta:
        managed = False
        db_table = "node_tag"
