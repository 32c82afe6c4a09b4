"""The messages of docs/protocol.md as dataclasses.

`dump` and `load` turn them into JSON and back; `load` checks the presence and type of every field,
deeply, and refuses unknown ones, so that both ends speak exactly this schema.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import orjson

VERSION = 1
TOKEN_SCHEME = "Worker"  # noqa: S105 - the name of the Authorization scheme

T = TypeVar("T")


class WireError(ValueError):
    """A message that does not fit the schema; `path` names the place, as `results[0].rev`."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path or 'message'}: {problem}")
        self.path = path
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Register:
    name: str
    evaluator: str
    version: str
    host: str = ""
    pid: int = 0


@dataclass(frozen=True, slots=True)
class Registered:
    worker: str
    incarnation: str
    """The incarnation of the database. Revs, leases and ids of another one are not valid in it."""
    clusters: list[str]
    heartbeat_seconds: int
    lease_seconds: int
    evaluation_seconds: float
    batch_nodes: int
    batch_bytes: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    worker: str
    leases: list[str]


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    lost: list[str]


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    worker: str
    max_partitions: int = 1
    holds: list[int] = field(default_factory=list)
    leases: list[str] | None = None
    """All that the worker has; None: it does not say. Others of its leases were answers that never
    reached it."""


@dataclass(frozen=True, slots=True)
class StaleExpression:
    expression: int
    base_rev: int | None


@dataclass(frozen=True, slots=True)
class LeasedPartition:
    lease: str
    partition: int
    cluster: str
    rev: int
    capacity: int
    expressions: list[StaleExpression]
    vocabulary_rev: int | None = None
    """The rev of the stored vocabulary, -1 where there is none; None: nothing is to be learnt."""


@dataclass(frozen=True, slots=True)
class Definition:
    text: str
    namespaces: dict[str, str]


@dataclass(frozen=True, slots=True)
class LeaseAnswer:
    leases: list[LeasedPartition]
    expressions: dict[str, Definition]
    """The definitions by expression id, a decimal string (JSON's object keys are strings)."""
    evaluation_seconds: float | None = None
    """What one expression may take from now on; None: as registered."""
    incarnation: str | None = None
    """The incarnation of the revs in `leases`; None where there are none."""


@dataclass(frozen=True, slots=True)
class BatchNode:
    slot: int
    rev: int
    probes: dict[str, str] | None
    """None: a tombstone. Empty: a node without documents."""


@dataclass(frozen=True, slots=True)
class Batch:
    partition: int
    rev: int
    nodes: list[BatchNode]
    next: int | None


@dataclass(frozen=True, slots=True)
class MatchResult:
    expression: int
    members: str
    base_rev: int | None = None
    evaluated: str | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    expression: int
    reason: str


@dataclass(frozen=True, slots=True)
class PartitionResult:
    lease: str
    partition: int
    rev: int
    matches: list[MatchResult]
    failures: list[Failure]
    documents: int
    seconds: float
    vocabulary: list[str] | None = None
    """Parts, each zstd and base64 of `tagmill_expressions.vocabulary.Vocabulary.dump`."""
    vocabulary_base: int | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    worker: str
    incarnation: str
    """The incarnation of the leases and revs in `results`."""
    results: list[PartitionResult]


@dataclass(frozen=True, slots=True)
class ResultOutcome:
    lease: str
    outcome: str
    applied: int
    stale: int


@dataclass(frozen=True, slots=True)
class CompletionAnswer:
    results: list[ResultOutcome]


@dataclass(frozen=True, slots=True)
class GiveUp:
    worker: str
    leases: list[str]
    reason: str
    delay: int = 0
    """Seconds for which nobody is to be given these partitions, unless they change."""


def dump(message: Any) -> bytes:
    """The message (a dataclass of this module) as JSON bytes."""
    return orjson.dumps(message)


def load(kind: type[T], data: bytes) -> T:
    """The message that `data` holds. Raises WireError."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise WireError("", f"not JSON: {error}") from None
    return build(kind, value)


def build(kind: type[T], value: Any, path: str = "") -> T:
    """A dataclass from a decoded JSON value. Raises WireError."""
    if not isinstance(value, dict):
        raise WireError(path, "must be an object")
    required, hints = _schema(kind)  # type: ignore[arg-type]  # a class is hashable
    unknown = value.keys() - hints.keys()
    if unknown:
        raise WireError(path, f"unknown field {sorted(unknown)[0]!r}")
    missing = required - value.keys()
    if missing:
        raise WireError(path, f"missing field {sorted(missing)[0]!r}")
    prefix = f"{path}." if path else ""
    return kind(**{key: _check(hints[key], item, prefix + key) for key, item in value.items()})


@cache
def _schema(kind: type[Any]) -> tuple[set[str], dict[str, Any]]:
    required = {
        item.name
        for item in dataclasses.fields(kind)
        if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
    }
    return required, get_type_hints(kind)


def _check(hint: Any, value: Any, path: str) -> Any:
    origin = get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        (hint,) = (arm for arm in get_args(hint) if arm is not type(None))
        return _check(hint, value, path)
    if origin is list:
        if not isinstance(value, list):
            raise WireError(path, "must be an array")
        (inner,) = get_args(hint)
        return [_check(inner, item, f"{path}[{n}]") for n, item in enumerate(value)]
    if origin is dict:
        if not isinstance(value, dict):
            raise WireError(path, "must be an object")
        inner = get_args(hint)[1]
        return {key: _check(inner, item, f"{path}.{key}") for key, item in value.items()}
    if dataclasses.is_dataclass(hint):
        return build(typing.cast(type[Any], hint), value, path)
    if hint is float and type(value) in (int, float):
        return float(value)
    if type(value) is not hint:
        raise WireError(path, f"must be {_NAMES[hint]}")
    return value


_NAMES = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}
