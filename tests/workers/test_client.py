"""The client against real HTTP that goes wrong in every way we know of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import orjson
import pytest
import zstandard
from twisted.web.http_headers import Headers

from tagmill_wire import frames
from tagmill_wire.frames import PackedBatch, PackedNode
from tagmill_wire.messages import Heartbeat, Register
from tagmill_worker import client as clients
from tagmill_worker import pages
from tagmill_worker.client import Client
from tagmill_worker.errors import (
    NotFound,
    ProtocolError,
    Refused,
    ServerError,
    Unauthorized,
    Unavailable,
    WorkerGone,
)
from tests.wire.test_frames import MADE, XML
from tests.workers import mockapi
from tests.workers.running import run
from tests.workers.test_worker import FAULTS, Rig

T = TypeVar("T")


def answer_to(fault: Any, ask: Callable[[Client], Awaitable[Any]] | None = None) -> ServerError:
    """The error that a heartbeat (or `ask`) gets when the API answers by the fault."""

    async def story(rig: Rig) -> ServerError:
        rig.client = Client(rig.reactor, rig.url, mockapi.TOKEN, seconds=0.5, most_page_bytes=5000)
        rig.partition(1, ["<node/>"])
        rig.api.faults["heartbeat"].append(fault)
        rig.api.faults["batch"].append(fault)
        with pytest.raises(ServerError) as caught:
            await (ask or beat)(rig.client)
        return caught.value

    return tell(story)


def tell(story: Callable[[Rig], Awaitable[T]]) -> T:
    """What a story with a worker's rig gives; the rig is closed after it."""

    async def told() -> T:
        rig = Rig()
        try:
            return await story(rig)
        finally:
            await rig.client.close()
            await rig.close()

    return run(told())


async def beat(client: Client) -> Any:
    return await client.heartbeat(Heartbeat("w", []))


async def fetch(client: Client) -> Any:
    return await client.batch(
        1, incarnation="i", since=None, after=None, max_nodes=10, max_bytes=1000
    )


@pytest.mark.parametrize("fault", FAULTS)
def test_what_may_pass_is_unavailable(fault: str) -> None:
    assert isinstance(answer_to(FAULTS[fault]), Unavailable)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, Unauthorized), (404, NotFound), (409, Refused), (410, WorkerGone), (422, Refused)],
)
def test_problems_become_errors(status: int, kind: type[ServerError]) -> None:
    error = answer_to(mockapi.problem(status, "a_code"))
    assert type(error) is kind
    assert "it is a_code" in str(error)


@pytest.mark.parametrize(("status", "is_failure"), [(500, True), (502, True), (503, False)])
def test_a_failure_is_told_from_an_absence(status: int, is_failure: bool) -> None:
    error = answer_to(mockapi.problem(status, "a_code"))
    assert isinstance(error, Unavailable)
    assert error.is_failure is is_failure


def test_retry_after_is_passed_on() -> None:
    error = answer_to(mockapi.problem(503, "busy", Retry_After="7"))
    assert isinstance(error, Unavailable)
    assert error.retry_after == 7


def test_retry_after_may_be_a_date() -> None:
    raw = Headers({"Retry-After": ["Thu, 01 Jan 1970 00:00:00 GMT"]})
    assert clients.retry_after(raw) == 0
    assert clients.retry_after(Headers({"Retry-After": ["soon"]})) is None


HEAD = {"Content_Encoding": "zstd", "Tagmill_Rev": "4", "Tagmill_Empty": "false"}


@pytest.mark.parametrize("data", [b"", b"not zstd", zstandard.compress(b" " * 6000)])
def test_a_page_that_is_none_is_a_protocol_error(data: bytes) -> None:
    assert isinstance(answer_to(mockapi.body(data, **HEAD), fetch), ProtocolError)


@pytest.mark.parametrize(
    "wrong",
    [
        {"Tagmill_Rev": "x"},
        {"Tagmill_Rev": "9" * 19},
        {"Tagmill_Next": "-1"},
        {"Tagmill_Next": ""},
        {"Tagmill_Empty": "no"},
    ],
)
def test_a_page_without_a_right_head_is_a_protocol_error(wrong: dict[str, str]) -> None:
    fault = mockapi.body(zstandard.compress(b"{}"), **(HEAD | wrong))
    error = answer_to(fault, fetch)
    assert isinstance(error, ProtocolError)
    (name,) = wrong
    assert name.replace("_", "-") in str(error)


def test_a_body_beyond_the_bound_is_not_read() -> None:
    fault = mockapi.body(b" " * 100_000)
    error = answer_to(fault, fetch)
    assert isinstance(error, ProtocolError) and "more than 5000 bytes" in str(error)


@pytest.mark.parametrize("is_sized", [True, False])
def test_a_page_is_bounded_whether_or_not_its_frame_declares_a_size(is_sized: bool) -> None:
    compressor = zstandard.ZstdCompressor(write_content_size=is_sized)
    error = answer_to(mockapi.body(compressor.compress(b" " * 6000), **HEAD), fetch)
    assert isinstance(error, ProtocolError)


def test_a_page_is_not_unpacked_to_see_how_to_go_on() -> None:
    async def story(rig: Rig) -> None:
        # The header of a frame, and nothing that could be unpacked.
        data = zstandard.compress(b"x" * 4000)[:8]
        rig.api.faults["batch"].append(mockapi.body(data, **HEAD, Tagmill_Next="17"))
        page = await fetch(rig.client)
        assert (page.rev, page.next, page.is_empty, page.data) == (4, 17, False, data)

    tell(story)


@pytest.mark.parametrize(
    "node",
    [
        {"slot": 0, "rev": 1, "probes": {"lshw": 1}},
        {"slot": "0", "rev": 1, "probes": None},
        {"slot": 0, "rev": 1, "probes": {}, "more": 1},
        {"slot": 0, "rev": 1},
    ],
)
def test_a_page_with_a_node_that_does_not_fit_is_refused(node: dict[str, object]) -> None:
    batch = {"partition": 1, "rev": 4, "nodes": [node], "next": None}
    with pytest.raises(ProtocolError, match=r"not a batch: nodes\[0\]"):
        pages.entries(zstandard.compress(orjson.dumps(batch)))


def test_a_page_that_is_not_compressed_is_read_too() -> None:
    async def story(rig: Rig) -> None:
        batch = {"nodes": [], "next": None, "rev": 4, "partition": 1}
        head = {"Tagmill_Rev": "4", "Tagmill_Empty": "true"}
        rig.api.faults["batch"].append(mockapi.body(orjson.dumps(batch), **head))
        page = await fetch(rig.client)
        assert (page.rev, page.next, page.is_empty) == (4, None, True)
        assert pages.nodes(page.data) == []
        registered = await rig.client.register(Register("w", "lxml", "1"))
        assert registered.worker == "worker-1"

    tell(story)


KEY = frames.identity(MADE.content)
NODES = [(0, 4, {"lshw": XML.decode()})]
BRINGS = PackedBatch(1, 4, [PackedNode(0, 4, {"lshw": MADE.packed(XML, key=KEY)})], None, {})


def page_of(batch: PackedBatch, **headers: str) -> mockapi.Fault:
    return mockapi.body(zstandard.compress(frames.dump(batch)), **HEAD, **headers)


NAMES = page_of(BRINGS, Tagmill_Dictionaries=str(KEY))


@pytest.mark.parametrize("is_packed", [True, False])
def test_a_dictionary_is_fetched_once_and_each_page_is_whole(is_packed: bool) -> None:
    async def story(rig: Rig) -> None:
        rig.api.faults["batch"] += [NAMES, NAMES]
        packed = mockapi.body(zstandard.compress(MADE.content), Content_Encoding="zstd")
        rig.api.faults["dictionary"].append(packed if is_packed else mockapi.body(MADE.content))
        found = [await fetch(rig.client), await fetch(rig.client)]
        assert [pages.entries(page.data) for page in found] == [NODES, NODES]
        assert [call for call, _ in rig.api.requests] == ["batch", "dictionary", "batch"]
        # As from a disk, or from another worker.
        kept = pages.packed(1, 4, found[0].data)
        assert pages.entries(kept.data) == NODES
        for cut in (kept.data[:-1], kept.data[:10], kept.data + b"x", pages.JOINED):
            with pytest.raises(ProtocolError, match="a page"):
                pages.packed(1, 4, cut)

    tell(story)


def test_a_page_whose_dictionary_has_gone_is_asked_for_whole() -> None:
    async def story(rig: Rig) -> None:
        whole = PackedBatch(1, 4, BRINGS.nodes, None, {KEY: MADE.content})
        rig.api.faults["batch"] += [NAMES, page_of(whole)]
        assert pages.entries((await fetch(rig.client)).data) == NODES
        assert [call for call, _ in rig.api.requests] == ["batch", "dictionary", "batch"]

    tell(story)


def test_another_dictionary_than_was_named_is_a_protocol_error() -> None:
    async def story(rig: Rig) -> None:
        rig.api.faults["batch"].append(NAMES)
        rig.api.faults["dictionary"].append(mockapi.body(b"another"))
        with pytest.raises(ProtocolError, match=str(KEY)):
            await fetch(rig.client)

    tell(story)
