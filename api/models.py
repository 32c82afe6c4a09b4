"""Tokens of users, the caches, and the signing key. Workers' tokens are beside the workers."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from api.roles import Role


class UserToken(models.Model):
    """A token, of which only the digest is stored. It may do what `role` and its user's role have
    in common: a user who loses a role loses it with all tokens at once."""

    digest = models.BinaryField(max_length=64, unique=True, help_text="SHA-512 of the token")
    key = models.CharField(
        max_length=25, db_index=True, help_text="the token's first characters, to tell it by"
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens"
    )
    role = models.CharField(max_length=64, help_text="the role it was issued with")
    name = models.CharField(max_length=64, blank=True, help_text="what it is for")
    is_login = models.BooleanField(default=False, help_text="made by a name and a password")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField(null=True, help_text="null: never")
    last_used_at = models.DateTimeField(null=True, help_text="to the minute; null: never")

    class Meta:
        db_table = "user_token"
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.key} of {self.user}"

    @property
    def rights(self) -> Role:
        return Role.parse(self.role)


class ClusterRole(models.Model):
    """What a user may do in one cluster, beside what the user's role allows everywhere
    (`api.scopes`)."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="cluster_roles"
    )
    cluster = models.ForeignKey("fleet.Cluster", on_delete=models.CASCADE, related_name="+")
    role = models.CharField(max_length=64)

    class Meta:
        db_table = "user_cluster_role"
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["user", "cluster"], name="user_cluster_role_one")
        ]

    def __str__(self) -> str:
        return f"{self.user}: {self.role} in {self.cluster}"


class OidcIdentity(models.Model):
    """Who a user is at a provider of OpenID Connect (`api.oidc`)."""

    issuer = models.CharField(max_length=512)
    subject = models.CharField(max_length=255, help_text="never given to somebody else")
    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="oidc_identity"
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        db_table = "oidc_identity"
        constraints = [
            models.UniqueConstraint(fields=["issuer", "subject"], name="oidc_identity_one")
        ]

    def __str__(self) -> str:
        return f"{self.subject} of {self.issuer}"


class IdempotentRequest(models.Model):
    """A POST that was sent with an Idempotency-Key, and its answer; without a status it is under
    way (`api.idempotency`)."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=255)
    digest = models.BinaryField(max_length=32, help_text="SHA-256 of the request")
    status = models.PositiveSmallIntegerField(null=True)
    body = models.BinaryField(default=b"", help_text="JSON; it holds no secrets")
    headers = models.JSONField(default=dict)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        db_table = "idempotent_request"
        constraints = [
            models.UniqueConstraint(fields=["user", "key"], name="idempotent_request_key")
        ]
        indexes = [models.Index(fields=["created_at"], name="idempotent_request_created")]

    def __str__(self) -> str:
        return self.key


class CacheEntry(models.Model):
    """The table of Django's database cache, as it wants it (`tagmill.shared_cache`). Entries that
    have ended are deleted when there are many (`tagmill.caches.MAX_ENTRIES`)."""

    cache_key = models.CharField(max_length=255, primary_key=True)
    value = models.TextField()
    expires = models.DateTimeField(db_index=True)

    class Meta:
        db_table = "cache_entry"

    def __str__(self) -> str:
        return self.cache_key


class BodyCacheControl(models.Model):
    """What somebody asked of the body cache, for all servers (`api.cache.controls`)."""

    scope = models.CharField(
        max_length=400, primary_key=True, help_text="all, or a keyspace, a tag, a partition"
    )
    generation = models.BigIntegerField(help_text="raised by each flush")
    is_off = models.BooleanField(db_default=False)
    changed_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        db_table = "body_cache_control"
        ordering = ["scope"]
        verbose_name = "control of the body cache"
        verbose_name_plural = "controls of the body cache"

    def __str__(self) -> str:
        return self.scope


class BodyCacheReport(models.Model):
    """What one server process has counted in one keyspace of the body cache since its start."""

    process = models.CharField(max_length=100)
    keyspace = models.CharField(max_length=32)
    lookups = models.BigIntegerField()
    hits = models.BigIntegerField()
    misses = models.BigIntegerField()
    coalesced = models.BigIntegerField()
    evicted_bytes = models.BigIntegerField()
    oversize = models.BigIntegerField()
    builds = models.BigIntegerField()
    build_seconds = models.FloatField()
    entries = models.BigIntegerField()
    bytes = models.BigIntegerField()
    at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        db_table = "body_cache_report"
        ordering = ["process", "keyspace"]
        constraints = [
            models.UniqueConstraint(fields=["process", "keyspace"], name="body_cache_report_one")
        ]
        verbose_name = "count of the body cache"
        verbose_name_plural = "counts of the body cache"

    def __str__(self) -> str:
        return f"{self.process} {self.keyspace}"


class SigningKey(models.Model):
    """What all servers sign with (`api.signing`). There is one row at most."""

    id = models.SmallIntegerField(primary_key=True)
    key = models.CharField(max_length=200)

    class Meta:
        db_table = "signing_key"
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="signing_key_is_one")]

    def __str__(self) -> str:
        return "the signing key"
