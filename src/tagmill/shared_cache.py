"""Django's database cache, such that it can count calls of all server processes."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.cache.backends.base import DEFAULT_TIMEOUT
from django.core.cache.backends.db import DatabaseCache
from django.db import connection, transaction

# First halves of the keys of advisory locks; the second is a hash of the entry's key, or 0.
LOCK_ENTRY, LOCK_CULL = 0x7A6D12, 0x7A6D13


class SharedDatabaseCache(DatabaseCache):
    """Django's own reads an entry and then writes it, so that two processes may count one call, and
    its `incr` moves the end of an entry. Here nobody touches the entry in between, and the end
    stays. Call it outside of transactions: the lock of an entry lasts until the end."""

    def add(
        self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> bool:
        with self._alone(key, version):
            return bool(super().add(key, value, timeout, version))

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        with self._alone(key, version) as (name, cursor):
            found = self.get(key, version=version)
            if found is not None:
                value = int(found) + delta
                dumped = base64.b64encode(pickle.dumps(value, self.pickle_protocol)).decode()
                table = connection.ops.quote_name(self._table)  # type: ignore[attr-defined]
                cursor.execute(
                    f"UPDATE {table} SET value = %s WHERE cache_key = %s",  # noqa: S608
                    [dumped, name],
                )
                return value
        # Only now: the look has deleted an entry that ended, and an error would undo that. `add`
        # knows whole seconds, and would take it for one that goes on.
        raise ValueError(f"there is no entry {name}")

    @contextmanager
    def _alone(self, key: Any, version: int | None) -> Iterator[tuple[str, Any]]:
        """What follows looks at the entry as it is when every other process is done with it."""
        name = self.make_and_validate_key(key, version=version)
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [LOCK_ENTRY, name])
            yield name, cursor

    def _cull(self, db: str, cursor: Any, now: Any, num: int) -> None:
        """One process at a time: two that delete the same entries could wait for each other."""
        with transaction.atomic():
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s, 0)", [LOCK_CULL])
            if cursor.fetchone() == (True,):
                super()._cull(db, cursor, now, num)  # type: ignore[misc]
