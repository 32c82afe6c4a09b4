"""The messages of docs/protocol.md as structs.

`dump` and `load` turn them into JSON and back; `load` checks the presence and type of every field,
deeply, and refuses unknown ones, so that both ends speak exactly this schema. Nothing is converted:
neither text to a number nor `true` to 1.
"""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

VERSION = 2
"""What 2 added (`next` of a completion), a worker of 1 never asks for and is never sent."""
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


class Heartbeat(Message, frozen=True):
    worker: str
    leases: list[str]


class HeartbeatAnswer(Message, frozen=True):
    lost: list[str]


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


class StaleExpression(Message, frozen=True):
    expression: Bigint
    base_rev: Bigint | None


class LeasedPartition(Message, frozen=True):
    lease: str
    partition: Bigint
    cluster: str
    rev: Bigint
    capacity: Bigint
    expressions: list[StaleExpression]
    vocabulary_rev: Bigint | None = None
    """The rev of the stored vocabulary, -1 where there is none; None: nothing is to be learnt."""


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


class NextLease(Message, frozen=True):
    """What a LeaseRequest asks for, with a completion."""

    max_partitions: Bigint = 1
    holds: list[Bigint] = []
    leases: list[str] | None = None
    pace: Pace | None = None


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
