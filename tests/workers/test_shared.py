"""What workers share with each other, by way of the mock API: taken where it is right, and nothing
lost where it is not."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
import structlog
import zstandard
from twisted.web.server import NOT_DONE_YET

from tagmill_wire import images
from tagmill_worker.cache import bundle, files
from tagmill_worker.errors import AnswerTooLarge, ProtocolError
from tagmill_worker.pages import Page
from tests.workers import mockapi
from tests.workers.running import polled, run
from tests.workers.test_cache import PARTITIONS, Life, document, said
from tests.workers.test_worker import EVALUATORS, VARIABLE, Rig, only_kernel

INCARNATION = "0b2ff9ae-7d5c-4a61-8f32-54fc1ab7a1c5"


@pytest.fixture(autouse=True, params=EVALUATORS)
def evaluator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(VARIABLE, request.param)
    return str(request.param)


with_one = pytest.mark.parametrize("evaluator", EVALUATORS[-1:], indirect=True)


@pytest.fixture
def log() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as lines:
        yield lines


class Site(Life):
    """Workers with a disk each, and one store of images."""

    def __init__(self, directory: Path, *options: str) -> None:
        super().__init__(directory / "one", *options)
        self.incarnation = INCARNATION
        self.images: dict[tuple[int, str], tuple[str, bytes]] = {}
        self.fill()

    def start(self, *options: str) -> Rig:
        rig = super().start(*options)
        rig.api.images = self.images
        return rig

    def elsewhere(self, name: str = "two") -> None:
        self.directory = self.directory.with_name(name)

    async def shared(self) -> None:
        """Until everything is."""
        flusher = self.rig.worker.flusher
        assert flusher is not None
        flusher.ask()
        await polled(self.rig.reactor, lambda: flusher.is_done() and self.dirty() == 0)

    def dirty(self) -> float:
        value = self.rig.value
        return sum(
            value("tagmill_worker_cache_state_bytes", state=state)
            for state in ("dirty", "flushing")
        )

    async def first(self) -> None:
        """A worker that evaluates all of it, shares it, and stops."""
        self.start()
        await self.evaluate()
        await self.kept()
        await self.shared()
        await self.rig.stop()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_new_worker_takes_what_another_shared(site: Site, evaluator: str) -> None:
    """Nothing is fetched and parsed again, and it is on its own disk then; a change comes alone."""

    async def story() -> None:
        await site.first()
        assert len(site.images) == PARTITIONS
        site.elsewhere()
        rev = site.data[1].rev
        site.data[1].put(0, None)
        site.data[1].put(7, "<list><node class='gpu'/></list>")
        rig = site.start()
        await site.evaluate()
        assert [page.get("since") for page in rig.api.pages] == [rev]
        assert rig.value("tagmill_worker_paths_total", path="shared") == PARTITIONS
        assert rig.value("tagmill_worker_shared_reads_total", outcome="hit") == PARTITIONS
        is_kernel = evaluator == "kernel"
        opened = rig.value("tagmill_worker_shared_images_total", outcome="opened")
        assert opened == (2 * PARTITIONS if is_kernel else 0)
        await site.kept(2 * PARTITIONS + 1 if is_kernel else 0)
        # The others have it already.
        assert "share" not in [call for call, _ in rig.api.requests]
        await rig.stop()
        rig = site.start()
        await site.evaluate()
        await rig.stop()
        assert [call for call, _ in rig.api.requests if call in ("image", "batch")] == []
        assert rig.value("tagmill_worker_paths_total", path="warm") == PARTITIONS

    run(story())


@with_one
def test_a_worker_warms_its_share_from_what_another_shared(site: Site, evaluator: str) -> None:
    """No document is sent, and no image made again."""

    async def story() -> None:
        await site.first()
        site.elsewhere()
        rig = site.start()
        rig.api.registration["protocol"] = 4
        rig.api.share = (1, list(site.data))
        await rig.api.until(lambda: any(asked.ready for asked in rig.api.shares))
        assert rig.api.pages == []
        assert rig.value("tagmill_worker_paths_total", path="shared") == PARTITIONS
        opened = rig.value("tagmill_worker_shared_images_total", outcome="opened")
        assert opened == (2 * PARTITIONS if evaluator == "kernel" else 0)
        await site.evaluate()
        assert rig.api.pages == []
        await rig.stop()

    run(story())


@with_one
def test_one_without_room_takes_it_all_the_same(site: Site) -> None:
    """Into memory alone."""

    async def story() -> None:
        await site.first()
        site.elsewhere()
        for partition in site.data.values():
            partition.put(0, document(random.Random(2)))
        rig = site.start("--cache-bytes", "1MiB", "--store-bytes", "0")
        rig.worker.tier.upkeep.entries._most = 1
        for _ in range(2):
            await site.evaluate()
        await rig.stop()
        assert rig.value("tagmill_worker_cache_partitions") == 0
        assert rig.value("tagmill_worker_paths_total", path="shared") == 2 * PARTITIONS
        assert None not in [page.get("since") for page in rig.api.pages]

    run(story())


# -- what is not right ---------------------------------------------------------------------------


def changed(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    """A body whose head is another."""

    def make(body: bytes) -> bytes:
        _, _, size = bundle.START.unpack_from(body)
        head = orjson.loads(body[bundle.START.size : bundle.START.size + size])
        change(head)
        text = orjson.dumps(head)
        start = bundle.START.pack(bundle.MAGIC, bundle.SCHEMA, len(text))
        return start + text + body[bundle.START.size + size :]

    return make


def pages_of(body: bytes) -> tuple[Any, bundle.Bundle]:
    _, _, size = bundle.START.unpack_from(body)
    head = msgspec.json.decode(body[bundle.START.size : bundle.START.size + size], type=bundle.Head)
    return head, bundle.unpack(body, head.incarnation, head.partition, head.rev)


def repacked(change: Callable[[bytes, bytes], bytes]) -> Callable[[bytes], bytes]:
    """A body with other images of its pages."""

    def make(body: bytes) -> bytes:
        head, found = pages_of(body)
        parts = [
            (page, change(*bundle.unpack_image(found.packed[page.key]))) for page in found.pages
        ]
        return b"".join(bundle.pack(head.incarnation, head.partition, head.rev, parts))

    return make


def said_of(**fields: Any) -> Callable[[bytes, bytes], bytes]:
    """An image about which something else is said, with a digest that is right."""

    def change(slots: bytes, image: bytes) -> bytes:
        about = {**orjson.loads(slots[files.DIGEST_BYTES :]), **fields}
        text = orjson.dumps(about)
        return bundle.pack_image(bytes.fromhex(files.digest(text)) + text, image)

    return change


def bomb() -> bytes:
    """The beginning of a gibibyte."""
    packing = zstandard.ZstdCompressor().compressobj(size=1 << 30)
    return packing.compress(bytes(1 << 18)) + packing.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)


WRONG_BODIES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda body: b"",
    "short": lambda body: body[:-1],
    "long": lambda body: body + b"x",
    "garbage": lambda body: bytes(len(body)),
    "partition": changed(lambda head: head.update(partition=99)),
    "incarnation": changed(lambda head: head.update(incarnation="other")),
    "rev": changed(lambda head: head.update(rev=head["rev"] + 1)),
    "negative": changed(lambda head: head["pages"].append([-1, -1, 1])),
    "field": changed(lambda head: head.update(more=1)),
    "pages": changed(lambda head: head.update(pages=[[1, 0, 0]] * 2000)),
    "no zstd": changed(lambda head: head["pages"].insert(0, [1, 0, 0])),
}
WRONG_IMAGES: dict[str, Callable[[bytes], bytes]] = {
    "no zstd": repacked(lambda slots, image: b"garbage"),
    "bomb": repacked(lambda slots, image: bomb()),
    "short": repacked(lambda slots, image: zstandard.compress(b"\xff\xff\xff\xff123")),
    "cut": repacked(lambda slots, image: bundle.pack_image(slots, image[:-1])),
    "other": repacked(lambda slots, image: bundle.pack_image(slots, bytes(len(image)))),
    "digest": repacked(lambda slots, image: bundle.pack_image(b"x" + slots[1:], image)),
    "page": repacked(said_of(page="00")),
    "maker": repacked(said_of(by="somebody")),
    "slot": repacked(said_of(revs=[[2**40, 1]])),
    "slots": repacked(said_of(slots="f" * 100_000)),
    "refused": repacked(said_of(more={"slots": "3", "refused": "ff"})),
    "more": repacked(said_of(more={})),
    "kind": repacked(said_of(revs="none")),
}


def named(site: Site, body: bytes, key: tuple[int, str], **parts: Any) -> tuple[str, bytes]:
    """The body under the name that the server would give it."""
    given = {"incarnation": INCARNATION, "rev": site.data[key[0]].rev, **parts}
    return images.name(given["incarnation"], given["rev"], key[1], files.digest(body)), body


@with_one
def test_a_body_that_is_not_right_is_not_used(site: Site, log: list[Any]) -> None:
    """Whatever the server says its digest is; and then the documents are fetched."""

    async def story() -> None:
        await site.first()
        good = dict(site.images)
        site.elsewhere()
        rig = site.start()
        for change in WRONG_BODIES.values():
            for key, (_, body) in good.items():
                site.images[key] = named(site, change(body), key)
            rig.worker._holdings._shared._off_until = 0
            before = len(rig.api.pages)
            await site.evaluate()
            assert len(rig.api.pages) > before
            for key in site.data:
                rig.worker._holdings.drop(key)
        # As it was, under another's digest, and without a name at all.
        for wrong in ("0" * 64, ""):
            for key, (name, body) in good.items():
                site.images[key] = (name[:-64] + wrong, body)
            rig.worker._holdings._shared._off_until = 0
            await site.evaluate()
            for key in site.data:
                rig.worker._holdings.drop(key)
        await rig.stop()
        assert rig.value("tagmill_worker_paths_total", path="shared") == 0
        assert rig.value("tagmill_worker_child_restarts_total", reason="died") == 0
        assert len(said(log, "shared_failed")) == len(WRONG_BODIES) + 2

    run(story())


@only_kernel
def test_an_image_in_it_that_is_not_right_is_made_again(site: Site, log: list[Any]) -> None:
    """And never ends the child."""

    async def story() -> None:
        await site.first()
        good = dict(site.images)
        site.elsewhere()
        rig = site.start()
        for change in WRONG_IMAGES.values():
            for key, (_, body) in good.items():
                site.images[key] = named(site, change(body), key)
            await site.evaluate()
            for key in site.data:
                rig.worker._holdings.drop(key)
        await rig.stop()
        assert rig.api.pages == []
        wrong = len(WRONG_IMAGES) * 2 * PARTITIONS
        assert rig.value("tagmill_worker_shared_images_total", outcome="damaged") == wrong
        assert len(said(log, "shared_damaged")) == wrong
        assert rig.value("tagmill_worker_child_restarts_total", reason="died") == 0

    run(story())


@only_kernel
def test_what_cannot_be_evaluated_is_not_taken_again(site: Site) -> None:
    """Pages that unpack to something else: the partition is given back, and then read as
    documents."""

    async def story() -> None:
        await site.first()
        for key, (_, body) in list(site.images.items()):
            head, found = pages_of(body)
            other = zstandard.compress(b"{}")
            wrong = [(Page(page.partition, 1, None, False, other), b"") for page in found.pages]
            made = b"".join(bundle.pack(head.incarnation, head.partition, head.rev, wrong))
            site.images[key] = named(site, made, key)
        site.elsewhere()
        rig = site.start()
        rig.api.enqueue({1: {7: None}})
        await rig.api.until(lambda: bool(rig.api.given_up))
        assert rig.api.pages == []
        await site.evaluate(1)
        await rig.stop()
        assert rig.value("tagmill_worker_paths_total", path="documents") == 1

    run(story())


# -- a server that does not answer ----------------------------------------------------------------


def slow(request: Any) -> Any:
    return NOT_DONE_YET


@with_one
@pytest.mark.parametrize(
    "fault",
    [
        mockapi.problem(503, "images_unavailable"),
        mockapi.problem(500, "internal"),
        mockapi.drop,
        mockapi.truncate,
        mockapi.garbage,
        mockapi.problem(404, "images_off"),
        slow,
    ],
)
def test_without_an_answer_the_documents_are_fetched(
    site: Site, fault: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, and the server is left alone: no partition after the other waits for it."""
    monkeypatch.setattr("tagmill_worker.cache.shared.ANSWER_SECONDS", 0.2)

    async def story() -> None:
        rig = site.start()
        rig.api.faults["image"].extend([fault] * 10)
        await site.evaluate()
        await site.evaluate()
        await rig.stop()
        # A connection that breaks off is tried once more.
        assert len([call for call, _ in rig.api.requests if call == "image"]) <= 2
        assert rig.value("tagmill_worker_paths_total", path="documents") == PARTITIONS

    run(story())


@with_one
def test_an_incarnation_that_ended_is_heard_of(site: Site) -> None:
    async def story() -> None:
        rig = site.start()
        rig.api.faults["image"].append(mockapi.problem(410, "incarnation_changed"))
        rig.api.enqueue({1: {7: None}})
        await rig.api.until(lambda: len(rig.api.registered) == 2)
        await site.evaluate()
        await rig.stop()

    run(story())


# -- by themselves --------------------------------------------------------------------------------


@with_one
def test_a_bundle_is_of_this_kind_of_worker(evaluator: str) -> None:
    assert bundle.schema("lxml") != bundle.schema(evaluator)
    assert images.parts(images.name(INCARNATION, 1, bundle.schema(evaluator), "0" * 64))
    with pytest.raises(AnswerTooLarge):
        bundle.unpack_image(bomb())
    with pytest.raises(ProtocolError):
        bundle.unpack(b"TAGMILLS" + bytes(3), INCARNATION, 1, 1)
