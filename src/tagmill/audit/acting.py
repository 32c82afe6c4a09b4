"""Who acts: set for the triggers of the audit in the transaction that changes something.

A statement that writes to a watched table is preceded by one that sets `tagmill.actor`, `.via` and
`.request_id` until the transaction ends. Other statements are left as they are, so that the paths
of uploads and completions pay nothing, and nothing survives on a pooled connection.
"""

from __future__ import annotations

import contextlib
import functools
import getpass
import os
import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

WATCHED = (
    "tag",
    "cluster",
    "worker_token",
    "worker_token_cluster",
    "auth_user",
    "auth_user_groups",
    "user_cluster_role",
    "user_token",
)
# That a token was used, or somebody logged in, is no event.
WRITES = re.compile(
    rf'\b(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM)\s+"?(?:{"|".join(WATCHED)})"?'
    r'(?=[\s(])(?!\s+SET\s+"last_(?:used_at|login)")',
    re.IGNORECASE,
)
SET = (
    "SELECT set_config('tagmill.actor', %s, true), set_config('tagmill.via', %s, true), "
    "set_config('tagmill.request_id', %s, true)"
)
MAX_ACTOR = 256
MAX_KNOWN = 8192


Via = Literal["api", "admin", "command", "worker", "system"]


class Actor(NamedTuple):
    name: str = ""
    via: Via = "system"
    request_id: str = ""


_process = Actor()
_who: ContextVar[Callable[[], Actor]] = ContextVar("tagmill_actor", default=lambda: _process)


@contextlib.contextmanager
def acting(who: Callable[[], Actor]) -> Iterator[None]:
    """What this thread changes meanwhile is done by `who`, asked when something is changed."""
    token = _who.set(who)
    try:
        yield
    finally:
        _who.reset(token)


def watch(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """A receiver of Django's `connection_created`."""
    if _execute not in connection.execute_wrappers:
        connection.execute_wrappers.append(_execute)


def as_command() -> None:
    """What this process changes on its own is done by whoever runs it. For manage.py."""
    global _process  # noqa: PLW0603 - one process, one command
    _process = Actor(_system_user(), "command")


def current() -> Actor:
    """Who acts in this thread now."""
    return _who.get()()


def _system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a number that has no name.
        return str(os.getuid())


def _writes(text: str) -> bool:
    # What comes again is not searched again, which takes as long as to send it. What is long has
    # its values in it, and does not.
    return _known(text) if len(text) <= MAX_KNOWN else WRITES.search(text) is not None


@functools.lru_cache(maxsize=1024)
def _known(text: str) -> bool:
    return WRITES.search(text) is not None


def _execute(
    execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]
) -> Any:
    if not (isinstance(sql, str) and _writes(sql)):
        return execute(sql, params, many, context)
    using: BaseDatabaseWrapper = context["connection"]
    # Settings that are local to a transaction need one.
    with contextlib.nullcontext() if using.in_atomic_block else transaction.atomic(using.alias):
        actor = current()
        with using.cursor() as cursor:
            cursor.execute(SET, [actor.name[:MAX_ACTOR], actor.via, actor.request_id])
        return execute(sql, params, many, context)
