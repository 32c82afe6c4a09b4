"""The messages of docs/protocol.md as structs.

`dump` and `load` turn them into JSON and back; `load` checks the presence and type of every field,
deeply, and refuses unknown ones, so that both ends speak exactly this schema. Nothing is converted:
neither text to a number nor `true` to 1.
"""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

VERSION = 6
"""What a later version added, a worker of an earlier one never asks for and is never sent."""
OLDEST = 1
"""The oldest version that a server answers. A worker of an earlier one is told to upgrade."""
NEXT_SINCE = 2
"""The version that added `next` of a completion."""
SETS_SINCE = 3
"""The version that added expression sets. Their fields are left out where they say nothing."""
SHARES_SINCE = 4
"""The version that added shares: which partitions a worker should hold. Their fields likewise."""
CHANGES_SINCE = 5
"""The version that added the changed nodes that a lease brings along. Their fields likewise."""
DONE_SINCE = 6
"""The version that added what a worker has done of late to its heartbeats."""
TOKEN_SCHEME = "Worker"  # noqa: S105 - the name of the Authorization scheme

# What every number in a message is kept in.
Bigint: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


# No measurement is below nothing, or above an hour.
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=3600)]


class WireError(ValueError):
    """A message that does not fit the schema; `path` names the place, as `results[0].rev`."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path or 'message'}: {problem}")
        self.path = path
        self.problem = problem


class UnknownField(WireError):
    """A field that the schema lacks; `path` names what it was found in."""


class NotJSON(WireError):
    """Bytes that are no JSON at all."""


class Message(Struct, frozen=True, forbid_unknown_fields=True):
    """What all messages and their parts have in common."""


T = TypeVar("T", bound=Message)


class Register(Message, frozen=True):
    name: str
    evaluator: str
    version: str
    host: str = ""
    pid: Bigint = 0
    protocol: Bigint = 1
    """The VERSION that the worker speaks."""


class Registered(Message, frozen=True, omit_defaults=True):
    worker: str
    incarnation: str
    """The incarnation of the database. Revs, leases and ids of another one are not valid in it."""
    clusters: list[str]
    heartbeat_seconds: Bigint
    lease_seconds: Bigint
    evaluation_seconds: float
    batch_nodes: Bigint
    batch_bytes: Bigint
    protocol: Bigint = 1
    """The VERSION that both speak."""


class Done(Message, frozen=True):
    """What a worker has done in the `seconds` before."""

    seconds: Seconds
    partitions: Bigint
    documents: Bigint


class Heartbeat(Message, frozen=True):
    worker: str
    leases: list[str]
    epoch: Bigint | UnsetType = UNSET
    """The epoch of the share that the worker knows; an answer names another one."""
    done: Done | UnsetType = UNSET
    """What it did in the last minute, for people who look at the fleet."""


class HeartbeatAnswer(Message, frozen=True):
    lost: list[str]
    epoch: Bigint | UnsetType = UNSET


class ShareRequest(Message, frozen=True):
    """What the worker should hold, of what its token names."""

    worker: str
    room: Bigint
    """Bytes that it can hold, which weigh its share; 0: it leaves, and is to own nothing."""
    ready: bool = False
    """Whether it has warmed a share that it was told: it is preferred for it from now on."""
    former: str | None = None
    """The worker that this one was before it started, or registered, again: it takes its place."""


class Share(Message, frozen=True):
    epoch: Bigint
    partitions: list[Bigint]


class Pace(Message, frozen=True):
    """What evaluation takes a worker of late, in seconds: to read one node's documents where it
    does not hold them, and one expression on one node."""

    document: Seconds
    evaluation: Seconds


class LeaseRequest(Message, frozen=True):
    worker: str
    max_partitions: Bigint = 1
    holds: list[Bigint] = []
    leases: list[str] | None = None
    """All that the worker has; None: it does not say. Others of its leases were answers that never
    reached it."""
    pace: Pace | None = None
    """None: not known; then a lease is bounded by count alone."""
    sets: bool | UnsetType = UNSET
    """Whether the answer may name an expression set."""
    epoch: Bigint | UnsetType = UNSET
    """The epoch of the share that the worker knows; an answer names another one."""
    changes: bool | UnsetType = UNSET
    """Whether the answer may bring along what has changed in the partitions that it names."""


class StaleExpression(Message, frozen=True):
    expression: Bigint
    base_rev: Bigint | None


class OfSet(Message, frozen=True):
    """Expressions of a set whose stored matches are of the same rev."""

    base_rev: Bigint | None
    which: str | None = None
    """A bitmap over the set, in its order; None: all of it."""


class Changes(Message, frozen=True):
    """What a page of a partition's nodes since a rev says, where there is no further page."""

    since: Bigint
    rev: Bigint
    """The partition's, as of the page."""
    data: str
    """The Batch as JSON, by zstd, in base64; empty: no node has changed."""


class LeasedPartition(Message, frozen=True):
    lease: str
    partition: Bigint
    cluster: str
    rev: Bigint
    capacity: Bigint
    expressions: list[StaleExpression]
    vocabulary_rev: Bigint | None = None
    """The rev of the stored vocabulary, -1 where there is none; None: nothing is to be learnt."""
    of_set: list[OfSet] | UnsetType = UNSET
    """What is stale, beside `expressions`, of the set that the answer names."""
    changes: Changes | UnsetType = UNSET
    """What has changed after the oldest `base_rev`; it need not be fetched."""


class Definition(Message, frozen=True):
    text: str
    namespaces: dict[str, str]


class LeaseAnswer(Message, frozen=True):
    leases: list[LeasedPartition]
    expressions: dict[str, Definition]
    """The definitions by expression id, a decimal string (JSON's object keys are strings)."""
    evaluation_seconds: float | None = None
    """What one expression may take from now on; None: as registered."""
    incarnation: str | None = None
    """The incarnation of the revs in `leases`; None where there are none."""
    set: str | UnsetType = UNSET
    """The version of the expression set that the leases name. Its definitions are fetched once."""
    epoch: Bigint | UnsetType = UNSET
    """The membership's, where the request named another one: the share may have changed."""


class SetExpression(Message, frozen=True):
    expression: Bigint
    text: str
    namespaces: dict[str, str]


class ExpressionSet(Message, frozen=True):
    """Immutable: what changes has another version."""

    version: str
    expressions: list[SetExpression]
    """Ordered by id. A bitmap over the set has them in this order."""


class BatchNode(Message, frozen=True):
    slot: Bigint
    rev: Bigint
    probes: dict[str, str] | None
    """None: a tombstone. Empty: a node without documents."""


class Batch(Message, frozen=True):
    partition: Bigint
    rev: Bigint
    nodes: list[BatchNode]
    next: Bigint | None


class MatchResult(Message, frozen=True):
    expression: Bigint
    members: str
    base_rev: Bigint | None = None
    evaluated: str | None = None


class Failure(Message, frozen=True):
    expression: Bigint
    reason: str


class SlotVerdicts(Message, frozen=True):
    slot: Bigint
    holds: str
    """The expressions that hold on its node, as a bitmap over the set."""


class PartitionResult(Message, frozen=True):
    lease: str
    partition: Bigint
    rev: Bigint
    matches: list[MatchResult]
    failures: list[Failure]
    documents: Bigint
    seconds: float
    vocabulary: list[str] | None = None
    """Parts, each zstd and base64 of `tagmill_expressions.vocabulary.Vocabulary.dump`."""
    vocabulary_base: Bigint | None = None
    set: str | UnsetType = UNSET
    """The version of the expression set that the following bitmaps are over."""
    deltas: list[OfSet] | UnsetType = UNSET
    """The expressions that were evaluated on the slots in `changed`, by the rev of their base."""
    changed: list[SlotVerdicts] | UnsetType = UNSET
    empty: str | UnsetType = UNSET
    """The expressions that were evaluated on every node, and hold on none."""


class NextLease(Message, frozen=True):
    """What a LeaseRequest asks for, with a completion."""

    max_partitions: Bigint = 1
    holds: list[Bigint] = []
    leases: list[str] | None = None
    pace: Pace | None = None
    sets: bool | UnsetType = UNSET
    epoch: Bigint | UnsetType = UNSET
    changes: bool | UnsetType = UNSET


class Completion(Message, frozen=True, omit_defaults=True):
    worker: str
    incarnation: str
    """The incarnation of the leases and revs in `results`."""
    results: list[PartitionResult]
    next: NextLease | None = None
    """Asks for leases in the same request: when the results are stored, and without waiting."""


class ResultOutcome(Message, frozen=True):
    lease: str
    outcome: str
    applied: Bigint
    stale: Bigint


class CompletionAnswer(Message, frozen=True, omit_defaults=True):
    results: list[ResultOutcome]
    next: LeaseAnswer | None = None
    """Where `next` was asked for: what is leased, if anything."""


class GiveUp(Message, frozen=True):
    worker: str
    leases: list[str]
    reason: str
    delay: Bigint = 0
    """Seconds for which nobody is to be given these partitions, unless they change."""


def dump(message: Message) -> bytes:
    """The message as JSON bytes."""
    return msgspec.json.encode(message)


def load(kind: type[T], data: bytes) -> T:
    """The message that `data` holds. Raises WireError."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise _unfit(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotJSON("", f"not JSON: {error}") from None


# As msgspec ends its sentences. A field's name, which is the sender's, cannot look like it: it is
# between backticks, too.
_PLACE = re.compile(r"(.*?)(?: - at (?:`key` in )?`\$\.?([^`]*)`)?", re.DOTALL)


def _unfit(sentence: str) -> WireError:
    found = _PLACE.fullmatch(sentence)
    problem, path = found.groups("") if found else (sentence, "")
    kind = UnknownField if problem.startswith("Object contains unknown field") else WireError
    return kind(path, problem)
