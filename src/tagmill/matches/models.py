"""Expressions, and the matches that say which slots of a partition an expression holds on.

A match is a pure function of (expression, partition, rev): it can be lost, repeated or recomputed
at will. It is fresh when its effective rev (`EffectiveMatch`) is its partition's; a missing row is
stale.

Bitmaps are `capacity / 8` bytes; slot n is bit `n % 8` (least significant first) of byte `n // 8`,
which is what PostgreSQL's `get_bit(bytea, n)` reads and what
`int.from_bytes(b, "little") >> n & 1` is.
"""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models.functions import Now

from tagmill.fleet.models import Partition


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


class ExpressionSet(models.Model):
    """What leases and completions name by its version in place of definitions: the expressions that
    tags had at some time, ascending. Nothing is wrong where one is missing: it is asked for, and
    answered, by expression then."""

    version = models.CharField(max_length=32, primary_key=True)
    ids = ArrayField(models.BigIntegerField())
    used_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "expression_set"

    def __str__(self) -> str:
        return self.version


class Match(models.Model):
    """The slots of `partition` on which `expression` holds at `rev`. Only a higher rev replaces it.

    One without a rev is settled: it is true at its partition's `settled_rev`, whatever that
    becomes. So a change that flips no verdict moves one rev, and writes no match.

    A forced rebuild sets `rev` to -1 and keeps `members` and, in `kept_rev`, the rev at which they
    were true.
    """

    pk = models.CompositePrimaryKey("expression_id", "partition_id")
    expression = models.ForeignKey(
        Expression, on_delete=models.CASCADE, related_name="matches", db_index=False
    )
    partition = models.ForeignKey(
        Partition, on_delete=models.CASCADE, related_name="matches", db_index=False
    )
    rev = models.BigIntegerField(null=True, help_text="null: the partition's settled_rev")
    kept_rev = models.BigIntegerField(null=True)
    members = models.BinaryField()
    evaluated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "match"
        # Without the rev, which is written often: an update then touches no index.
        indexes = [models.Index(fields=["partition"], name="match_partition")]


class EffectiveMatch(models.Model):
    """The view `effective_match`: the one that says which rev a match counts as. Read only.

    A match is fresh when `rev` is its partition's. Its members are those of `true_at`.
    """

    pk = models.CompositePrimaryKey("expression_id", "partition_id")
    expression = models.ForeignKey(Expression, on_delete=models.DO_NOTHING, related_name="+")
    partition = models.ForeignKey(Partition, on_delete=models.DO_NOTHING, related_name="+")
    rev = models.BigIntegerField()
    true_at = models.BigIntegerField()
    members = models.BinaryField()
    evaluated_at = models.DateTimeField()

    class Meta:
        managed = False
        db_table = "effective_match"


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
    is_move = models.BooleanField(
        null=True, help_text="true: of nodes that moved within their cluster; else null"
    )

    class Meta:
        db_table = "match_change"
        indexes = [
            models.Index(fields=["expression", "id"], name="match_change_expression"),
            BrinIndex(fields=["at"], name="match_change_at"),
        ]
