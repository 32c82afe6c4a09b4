"""The incarnation of the database: which history its revs belong to.

A rev names documents only within one history. After a restore, or a failover that lost
transactions, the database counts on from a lower rev and gives the same numbers to other documents.
So whatever names a rev outside of the database (an image that a worker holds, a lease, a result,
an entity tag, a key of a cache) names the incarnation, too: a uuid that is stored with the history
it was made for. Where the stored history is not the one that PostgreSQL is in, whoever sees it
first makes a new one.

What the database itself holds needs nothing: a dump, a replica and a recovery have all tables as of
one transaction, so that their matches are true of their documents.
"""

from __future__ import annotations

from uuid import UUID

import structlog

from tagmill import sql
from tagmill.errors import IncarnationChanged
from tagmill.program import NAME

log = structlog.get_logger("tagmill.incarnation")

# In one history revs only grow: who comes back with a higher one has seen another.
AHEAD = (
    "a worker names a rev that its partition has not reached: if the database went back to an "
    f"earlier state, run {NAME} restored"
)


def current() -> UUID:
    """The incarnation; a new one where the history is another."""
    return noted() or _renewed(declared=False)


def declare() -> UUID:
    """A new incarnation although the history looks the same."""
    return _renewed(declared=True)


def check(named: str) -> None:
    """Raises IncarnationChanged unless it is the current one. Makes none, as `noted`."""
    stored = noted()
    if stored is None or str(stored) != named:
        raise changed()


def changed() -> IncarnationChanged:
    return IncarnationChanged(
        "the database was restored, failed over or restarted: register again, and drop what is held"
    )


def noted() -> UUID | None:
    """The incarnation; None where the history is another. Makes none: it may be asked in a
    transaction that has locks."""
    return next(iter(sql.values(__file__, "incarnation", {})), None)


def _renewed(declared: bool) -> UUID:
    made: list[UUID] = sql.values(__file__, "renew_incarnation", {"declared": declared})
    for uuid in made:
        log.warning("a new incarnation of the database", action="renew", uuid=str(uuid))
        return uuid
    # Another process was first, and may be so again in the same moment.
    return noted() or current()
