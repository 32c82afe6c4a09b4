"""One leased partition: which documents its expressions need, and the result they make.

A match that was true at `base_rev` needs only the nodes that changed since; any other needs every
node. `since` is where the fetch begins: the rev of the image held, or, where every expression has
a base, the oldest of those (then no image is needed at all), or None for everything.

The stored vocabulary is brought forward on the way: by what has changed after it, and by everything
where there is none yet.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from msgspec import UNSET
from msgspec.structs import replace
from twisted.internet.defer import Deferred

from tagmill_wire import bitmap
from tagmill_wire.messages import Definition, Failure, LeasedPartition, MatchResult, PartitionResult
from tagmill_worker import pages, summary
from tagmill_worker.errors import ProtocolError
from tagmill_worker.evaluators.passes import PageAnswer, Pass
from tagmill_worker.pages import Page
from tagmill_worker.sets import DefinedSet
from tagmill_worker.store import Image


@dataclass(eq=False, slots=True)
class Job:
    """Written by the runtime; `members` and `changed` as bitmaps of slots.

    `held` is the store's, which another job may bring forward meanwhile: what this job says of it
    is `held_rev`, as it was planned. Its pages are read later, and may be newer than that.
    `deltas` has the base_rev of the expressions that only need what changed since `since`; `full`
    are the others. `changed` are the slots that the fetched pages named. `live` is the expression
    set that the lease names, if any.
    """

    lease: LeasedPartition
    incarnation: str
    held: Image | None
    held_rev: int | None
    since: int | None
    deltas: dict[int, int]
    full: list[int]
    pass_: Pass
    vocabulary: list[bytes] = field(default_factory=list)
    pages: list[Page] = field(default_factory=list)
    members: dict[int, int] = field(default_factory=dict)
    changed: int = 0
    documents: int = 0
    seconds: float = 0.0
    is_abandoned: bool = False
    is_fetching: bool = False
    is_passing: bool = True
    """Whether the store has no room for its pages: they are forgotten with the job."""
    was_read: bool = False
    """Whether the pages of `held` came from the cache."""
    shared: str = ""
    """The name of the shared image that `held` came from."""
    packed: dict[int, bytes] = field(default_factory=dict)
    """The images of the pages of `held`, by their keys, until they are asked."""
    is_held_passing: bool = False
    """Whether the store has no room for those: they are forgotten with the job."""
    written: Deferred[bool] | None = None
    """Fires when its pages are in the cache, or are not going to be."""
    fetching: Deferred[None] | None = None
    live: DefinedSet | None = None
    trace: str = ""
    """Its place in a trace, if any."""
    brought: Page | None = None
    """What has changed since `since`, where the lease has brought it along."""
    politely: Callable[[], Awaitable[None]] | None = None
    """Called before each page of a job that nobody waits for."""

    @property
    def everything(self) -> list[int]:
        return [*self.deltas, *self.full]

    @property
    def rev(self) -> int:
        """The image's after the fetch: its first page's; what it was where nothing is fetched."""
        if self.pages:
            return self.pages[0].rev
        assert self.held_rev is not None  # noqa: S101 - `is_current`
        return self.held_rev

    @property
    def is_current(self) -> bool:
        """Whether the image held is all that is needed: then there is nothing to fetch."""
        if self.held_rev is None or self.deltas:
            return False
        return self.held_rev >= self.lease.rev

    @property
    def learns_held(self) -> bool:
        """Whether the pages held have something that is new to the stored vocabulary."""
        learn = self.lease.vocabulary_rev
        return self.held_rev is not None and learn is not None and learn < self.held_rev

    @property
    def is_overtaken(self) -> bool:
        """Whether another job has brought what is held forward: what a lease brought along may be
        older, and must not hide it."""
        return self.brought is not None and self.held is not None and self.held.rev != self.held_rev

    @property
    def passing(self) -> list[Page]:
        """The pages that nobody will ask for once the job has ended."""
        held = self.held.pages if self.is_held_passing and self.held is not None else []
        return [*held, *(self.pages if self.is_passing else [])]

    def with_shared(self, name: str, image: Image, packed: dict[int, bytes]) -> None:
        """Another worker's image takes the place of what is held, which is nothing: what has
        changed since is fetched, and everything is evaluated."""
        self.held, self.shared, self.packed = image, name, packed
        self.held_rev = self.since = image.rev
        self.was_read = True

    def without_held(self) -> None:
        """What was held is not there after all: everything is fetched. Nothing was until now."""
        self.held = self.held_rev = self.since = self.brought = None
        self.full, self.deltas = self.everything, {}

    def fetched(self, answer: PageAnswer) -> None:
        """The answer to a page that was fetched."""
        self.changed |= answer.slots
        self.add(answer)

    def add(self, answer: PageAnswer) -> None:
        """The answer to a page, fetched or held."""
        for key, bits in answer.members.items():
            self.members[key] = self.members.get(key, 0) | bits
        self.documents += answer.documents
        self.seconds += answer.seconds
        if answer.vocabulary:
            self.vocabulary.append(answer.vocabulary)

    def result(self, *, by_set: bool = True) -> PartitionResult:
        """Once every page is answered; expression by expression where it is not to be `by_set`, or
        the lease names none. Raises ProtocolError for slots beyond the capacity."""
        lease, failures = self.lease, self.pass_.failures
        changed = self.changed | self.pass_.unreadable
        if changed >> lease.capacity:
            raise ProtocolError(f"a slot beyond the capacity of {lease.capacity}")
        answered = [key for key in self.pass_.expressions if key not in failures]
        packed = summary.NOTHING
        if by_set and self.live is not None:
            packed = summary.of(self, self.live.order, answered, changed)
        try:
            matches = [
                self._match(key, changed) for key in answered if key not in packed.expressions
            ]
        except OverflowError:
            raise ProtocolError(f"a slot beyond the capacity of {lease.capacity}") from None
        result = self._result(matches)
        if not packed.expressions or self.live is None:
            return result
        return replace(
            result,
            set=self.live.version,
            deltas=packed.deltas or UNSET,
            changed=packed.changed or UNSET,
            empty=packed.empty or UNSET,
        )

    def _result(self, matches: list[MatchResult]) -> PartitionResult:
        lease, failures = self.lease, self.pass_.failures
        return PartitionResult(
            lease=lease.lease,
            partition=lease.partition,
            rev=self.rev,
            matches=matches,
            failures=[Failure(key, why) for key, why in failures.items()],
            documents=self.documents,
            seconds=self.seconds,
            vocabulary=self._learnt(),
            vocabulary_base=self.lease.vocabulary_rev,
        )

    def _learnt(self) -> list[str] | None:
        if self.lease.vocabulary_rev is None:
            return None
        return [base64.b64encode(part).decode() for part in self.vocabulary]

    def _match(self, key: int, changed: int) -> MatchResult:
        capacity, members = self.lease.capacity, self.members.get(key, 0)
        if key not in self.deltas:
            return MatchResult(key, bitmap.encode(members, capacity))
        return MatchResult(
            key,
            bitmap.encode(members & changed, capacity),
            base_rev=self.deltas[key],
            evaluated=bitmap.encode(changed, capacity),
        )


def plan(
    lease: LeasedPartition,
    definitions: Mapping[str, Definition],
    held: Image | None,
    incarnation: str,
    live: DefinedSet | None = None,
) -> Job:
    """`incarnation`: the lease's; `live`: the set that it names. Raises ProtocolError for an
    expression without a definition, and bitmaps that are not the set's."""
    bases = _bases(lease, live)
    known = [base for base in bases.values() if base is not None and base >= 0]
    since: int | None = None
    brought = _brought(lease, known if len(known) == len(bases) else [])
    if brought is not None and lease.changes is not UNSET:
        since = lease.changes.since
        if held is not None and not since <= held.rev <= brought.rev:
            # It cannot be brought forward by this, and nothing else needs it.
            held = None
    elif held is not None:
        since = held.rev
    elif len(known) == len(bases) and lease.vocabulary_rev != -1:
        learnt = [] if lease.vocabulary_rev is None else [lease.vocabulary_rev]
        since = min([*known, *learnt], default=None)
    deltas = {
        key: base
        for key, base in bases.items()
        if since is not None and base is not None and base >= since
    }
    defined = {} if live is None else live.definitions
    try:
        expressions = {key: defined.get(key) or definitions[str(key)] for key in bases}
    except KeyError as error:
        raise ProtocolError(f"a lease without the definition of {error}") from None
    full = [key for key in bases if key not in deltas]
    held_rev = None if held is None else held.rev
    pass_ = Pass(expressions)
    job = Job(lease, incarnation, held, held_rev, since, deltas, full, pass_, live=live)
    job.brought = brought
    return job


def _brought(lease: LeasedPartition, bases: list[int]) -> Page | None:
    """What the lease brings along, where that is all that is needed. `bases`: of all expressions.
    Raises ProtocolError."""
    changes = lease.changes
    if changes is UNSET or lease.vocabulary_rev is not None:
        return None
    if not bases or min(bases) < changes.since:
        return None
    return pages.brought(lease.partition, changes)


def warming(partition: int, incarnation: str, politely: Callable[[], Awaitable[None]]) -> Job:
    """A job without expressions and lease: the partition is fetched, to be held."""
    lease = LeasedPartition("", partition, "", rev=0, capacity=0, expressions=[])
    pass_ = Pass({}, is_warming=True)
    return Job(lease, incarnation, None, None, None, {}, [], pass_, politely=politely)


def _bases(lease: LeasedPartition, live: DefinedSet | None) -> dict[int, int | None]:
    """The expressions asked for, and the revs of their stored matches."""
    bases = {item.expression: item.base_rev for item in lease.expressions}
    if lease.of_set is UNSET or not lease.of_set:
        return bases
    if live is None:
        raise ProtocolError("a lease of a set that is not named")
    for group in lease.of_set:
        try:
            bits = live.order.decode(group.which)
        except ValueError as error:
            raise ProtocolError(f"not expressions of the set: {error}") from None
        bases.update(dict.fromkeys(live.order.expressions(bits), group.base_rev))
    return bases
