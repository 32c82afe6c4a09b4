"""Tags, manual assignments, previews, and the rebuilds that were asked for.

A tag's members are the matches of its published expression (`tagmill.matches`), or its assignments.
"""

from __future__ import annotations

import uuid

from django.conf import settings
from django.contrib.postgres.indexes import BrinIndex
from django.core.validators import RegexValidator
from django.db import models
from django.db.models.functions import Now

from tagmill.fleet.models import Node, Partition
from tagmill.matches.models import Expression

TAG_NAME = r"[A-Za-z0-9_-]{1,256}"


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


class Assignment(models.Model):
    """The nodes to which a manual tag was assigned. Bits of deleted nodes are cleared with them."""

    pk = models.CompositePrimaryKey("tag_id", "partition_id")
    tag = models.ForeignKey(Tag, on_delete=models.CASCADE, related_name="assignments")
    partition = models.ForeignKey(Partition, on_delete=models.CASCADE, related_name="assignments")
    members = models.BinaryField()

    class Meta:
        db_table = "assignment"


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


class Rebuild(models.Model):
    """A request to evaluate tags everywhere. Its progress is derived, never counted:

    a target is reached when `match.rev >= target.rev` for (target.expression, target.partition).
    Once it is over, `totals` take the place of its targets.
    """

    class State(models.TextChoices):
        RUNNING = "running"
        COMPLETE = "complete"
        CANCELLED = "cancelled"
        FAILED = "failed"
        SUPERSEDED = "superseded"

    class Reason(models.TextChoices):
        CREATED = "created", "tag created"
        DEFINITION = "definition", "definition changed"
        FORCED = "forced", "asked for by a user"

    uuid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    tags = models.ManyToManyField(Tag, related_name="rebuilds", db_table="rebuild_tag")
    reason = models.CharField(max_length=16, choices=Reason)
    state = models.CharField(max_length=16, choices=State, db_default=State.RUNNING)
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    requested_at = models.DateTimeField(db_default=Now(), editable=False)
    finished_at = models.DateTimeField(null=True)
    totals = models.JSONField(
        null=True, help_text="the progress at the end; the targets are deleted from then on"
    )
    published_without = models.JSONField(
        default=list, db_default=[], help_text="clusters that a user published the tags without"
    )

    class Meta:
        db_table = "rebuild"
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["id"], condition=models.Q(state="running"), name="rebuild_running")
        ]

    def __str__(self) -> str:
        return str(self.uuid)


class RebuildTarget(models.Model):
    """The rev that (expression, partition) must reach for the rebuild to be complete."""

    pk = models.CompositePrimaryKey("rebuild_id", "expression_id", "partition_id")
    rebuild = models.ForeignKey(Rebuild, on_delete=models.CASCADE, related_name="targets")
    expression = models.ForeignKey(Expression, on_delete=models.CASCADE, related_name="+")
    partition = models.ForeignKey(Partition, on_delete=models.CASCADE, related_name="+")
    rev = models.BigIntegerField()

    class Meta:
        db_table = "rebuild_target"
