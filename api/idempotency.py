"""Idempotency-Key: a POST that is sent again with the same key is answered as the first time, and
nothing is done twice. Keys are a user's own, and kept for a day."""

from __future__ import annotations

import hashlib
import re
from datetime import timedelta
from typing import Any, cast

import orjson
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models.functions import Now
from rest_framework.request import Request
from rest_framework.response import Response

from api.encoding import dumps
from api.models import IdempotentRequest
from tagmill.errors import Conflict, Invalid

HEADER = "Idempotency-Key"
KEY = re.compile(r"[!-~]{1,255}")
KEPT = timedelta(days=1)
# One request deletes so many old ones at most.
MAX_DELETED = 100
# What is answered again beside the body.
HEADERS = ("Location", "ETag", "Tagmill-Settled")


class KeyReused(Conflict):
    code = "key_reused"


class Replay(Exception):
    """The answer of the first time."""

    def __init__(self, response: Response) -> None:
        super().__init__(HEADER)
        self.response = response


def begin(request: Request) -> IdempotentRequest | None:
    """What the answer is kept with; None without a key. Raises Replay, KeyReused, Conflict while
    the first request is under way, Invalid."""
    key = request.headers.get(HEADER)
    if key is None:
        return None
    if not KEY.fullmatch(key):
        raise Invalid(f"{HEADER} has 1 to 255 visible characters of ASCII", field=HEADER)
    user, digest = cast(User, request.user), _digest(request)
    _forget()
    try:
        with transaction.atomic():
            return IdempotentRequest.objects.create(user=user, key=key, digest=digest)
    except IntegrityError:
        found = IdempotentRequest.objects.filter(user=user, key=key).first()
    if found is None or found.status is None:
        raise Conflict("the first request with this key is under way: wait, and send it again")
    if bytes(found.digest) != digest:
        raise KeyReused(f"this {HEADER} was sent before with another request: make a new one")
    headers = {**found.headers, "Idempotency-Replayed": "true"}
    raise Replay(Response(orjson.loads(bytes(found.body)), found.status, headers=headers))


def end(kept: IdempotentRequest, response: Any) -> None:
    """Keep the answer of a success; what failed may be tried again."""
    if response.status_code >= 400:  # noqa: PLR2004
        kept.delete()
        return
    kept.status = response.status_code
    kept.body = dumps(getattr(response, "data", None))
    kept.headers = {name: response[name] for name in HEADERS if response.has_header(name)}
    kept.save(update_fields=["status", "body", "headers"])


def _digest(request: Request) -> bytes:
    parts = [request.method, request.get_full_path(), request.data]
    return hashlib.sha256(orjson.dumps(parts, default=str)).digest()


def _forget() -> None:
    old = IdempotentRequest.objects.filter(created_at__lt=Now() - KEPT)
    IdempotentRequest.objects.filter(
        pk__in=list(old.values_list("pk", flat=True)[:MAX_DELETED])
    ).delete()
