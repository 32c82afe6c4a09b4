"""What the endpoints of the worker protocol have in common, native ones and Django's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar
from uuid import UUID

from api.parsers import decoded
from api.problems import MalformedBody, Unauthorized, UnknownField
from tagmill.errors import Invalid, NotFound, TagmillError, WorkerGone
from tagmill.work import workers
from tagmill.work.models import Worker, WorkerToken
from tagmill.work.workers import Caller
from tagmill_wire import messages
from tagmill_wire.messages import TOKEN_SCHEME, Completion, LeaseRequest

T = TypeVar("T", bound=messages.Message)
Asked = TypeVar("Asked", LeaseRequest, Completion)


def message(kind: type[T], body: bytes) -> T:
    """Raises MalformedBody, and Invalid with the place in the message."""
    try:
        return messages.load(kind, body)
    except messages.NotJSON as error:
        # This one says the line and the column.
        decoded(body)
        raise MalformedBody(str(error)) from None
    except messages.UnknownField as error:
        raise UnknownField(str(error), field=error.path or None) from None
    except messages.WireError as error:
        raise Invalid(str(error), field=error.path or None) from None


def called(token: str, kind: type[Asked], body: bytes) -> tuple[Asked, Caller]:
    """The message, and the worker that sends it. What is wrong with a message, nobody learns who
    has no token. Raises Unauthorized, WorkerGone, and what `message` raises."""
    try:
        asked = message(kind, body)
        uuid = UUID(asked.worker)
    except TagmillError:
        authenticated(token)
        raise
    except ValueError:
        authenticated(token)
        raise WorkerGone("no such worker: register again") from None
    return asked, caller(token, uuid)


def caller(token: str, worker: UUID) -> Caller:
    """Raises Unauthorized, WorkerGone."""
    found = workers.call(token, worker)
    if found is None:
        raise wrong_token()
    return found


def authenticated(token: str) -> WorkerToken:
    """Raises Unauthorized."""
    found = workers.authenticate(token)
    if found is None:
        raise wrong_token()
    return found


def wrong_token() -> Unauthorized:
    return Unauthorized("the worker token is wrong or revoked", TOKEN_SCHEME)


def registered(worker: str, token: WorkerToken) -> Worker:
    """Raises WorkerGone."""
    try:
        return workers.get(UUID(worker), token)
    except (ValueError, NotFound):
        raise WorkerGone("no such worker: register again") from None


def check_leases(uuids: Iterable[str]) -> None:
    """Raises Invalid for a lease that is no uuid."""
    for uuid in uuids:
        try:
            UUID(uuid)
        except ValueError:
            raise Invalid(f"{uuid!r} is not the uuid of a lease", field="leases") from None
