"""What workers share with each other, by way of the mock API: taken where it is right, and nothing
lost where it is not."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
import zstandard
from twisted.internet.task import deferLater
from twisted.web.server import NOT_DONE_YET

from tagmill_wire import images
from tagmill_worker.cache import bundle, command, files
from tagmill_worker.cache.flushing import ASKED, Watermarks
from tagmill_worker.errors import AnswerTooLarge, BadSettings, ProtocolError
from tagmill_worker.pages import Page
from tests.workers import mockapi
from tests.workers.running import only_kernel, polled, run, with_one
from tests.workers.test_cache import KILLS, PARTITIONS, XPATH, Life, document, idle, said, spawned
from tests.workers.test_command import MANAGE, ended
from tests.workers.test_worker import Rig

INCARNATION = "0b2ff9ae-7d5c-4a61-8f32-54fc1ab7a1c5"


pytestmark = pytest.mark.usefixtures("evaluator")


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

    def idle(self) -> Rig:
        """An API for workers that are processes."""
        rig = idle(self)
        rig.api.images = self.images
        rig.api.registration["incarnation"] = self.incarnation
        return rig

    async def written(self, partition: int) -> None:
        """Until what the worker has of the partition is on the disk, and it knows."""
        tier, rev = self.rig.worker.tier, self.data[partition].rev
        assert tier is not None
        await polled(self.rig.reactor, lambda: tier.rev(partition) == rev)

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
        for number, change in enumerate(WRONG_IMAGES.values(), start=1):
            for key, (_, body) in good.items():
                site.images[key] = named(site, change(body), key)
            await site.evaluate()
            # An image that is saved after its partition was dropped would be found by the next.
            await site.kept(number * 2 * PARTITIONS)
            for key in site.data:
                rig.worker._holdings.drop(key)
            await rig.worker.tier.settled()
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


# -- on the way to others -------------------------------------------------------------------------


@with_one
def test_what_is_refused_is_not_sent_again_and_what_fails_is(site: Site, log: list[Any]) -> None:
    async def story() -> None:
        rig = site.start()
        rig.api.faults["share"].extend(
            [mockapi.problem(413, "too_large"), mockapi.problem(503, "images_unavailable")]
        )
        await site.evaluate()
        await site.kept()
        rig.worker.flusher._backoff._first = 0.01
        rig.worker.flusher.ask()
        await polled(rig.reactor, lambda: len(site.images) == PARTITIONS - 1)
        await polled(rig.reactor, rig.worker.flusher.is_done)
        assert site.dirty() > 0
        # Until it has changed by more than a little.
        refused = {1, 2, 3} - {partition for partition, _ in site.images}
        (key,) = refused
        site.data[key].put(0, f"<list>{random.Random(5).randbytes(3000).hex()}</list>")
        await site.evaluate()
        await site.written(key)
        rig.worker.flusher.ask()
        await polled(rig.reactor, lambda: len(site.images) == PARTITIONS and site.dirty() == 0)
        await rig.stop()
        assert len(said(log, "flush_refused")) == 1
        assert len(said(log, "flush_failed")) == 1

    run(story())


@with_one
def test_a_change_is_shared_once_it_is_a_part_of_it(site: Site) -> None:
    async def story() -> None:
        rig = site.start()
        for partition in site.data.values():
            for slot in range(6):
                body = random.Random(slot).randbytes(500).hex()
                partition.put(slot, f"<list><node/><node/>{body}</list>")
        await site.evaluate()
        await site.kept()
        await site.shared()
        names = {key: name for key, (name, _) in site.images.items()}
        site.data[1].put(0, "<list/>")
        await site.evaluate()
        await site.written(1)
        await site.shared()
        assert {key: name for key, (name, _) in site.images.items()} == names
        site.data[1].put(1, f"<list>{random.Random(9).randbytes(2000).hex()}</list>")
        await site.evaluate()
        await site.written(1)
        await site.shared()
        await rig.stop()
        changed = {key for key, (name, _) in site.images.items() if names[key] != name}
        assert {partition for partition, _ in changed} == {1}

    run(story())


@with_one
def test_four_are_sent_at_a_time_where_much_is_dirty_and_none_where_little(site: Site) -> None:
    for key in range(4, 8):
        site.data[key] = mockapi.Partition(key)
        site.data[key].put(0, "<list/>")

    async def story() -> None:
        rig = site.start()
        waiting: list[Any] = []

        def hold(request: Any) -> Any:
            waiting.append(request)
            return NOT_DONE_YET

        rig.api.faults["share"].extend([hold] * 20)
        await site.evaluate()
        await polled(rig.reactor, lambda: len(site.partitions()) == len(site.data))
        flusher = rig.worker.flusher
        flusher.tick()
        assert waiting == []
        marks = flusher._watermarks
        for most, expected in ((site.dirty() * 3, 1), (site.dirty() * 2.2, 4)):
            flusher._watermarks = type(marks)(most, 0.3, 0.4, 3600)
            flusher._has_images = False
            flusher.tick()
            await polled(rig.reactor, lambda expected=expected: len(waiting) == expected)
            assert len(flusher._running) == expected
        # Evaluation goes on, and so does the end.
        await site.evaluate()
        await rig.stop()
        assert site.images == {}

    run(story())


def test_the_older_the_dirty_are_the_more_are_sent() -> None:
    marks = Watermarks(1000, 0.3, 0.4, 60)
    assert [marks.uploads(size, 0) for size in (0, 299, 300, 399, 400, 1000)] == [0, 0, 1, 1, 4, 4]
    assert [marks.uploads(0, age) for age in (29, 30, 59, 60)] == [0, 1, 1, 4]


@with_one
@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--cache-dirty-ratio", "0.5"), "must not decrease"),
        (("--cache-dirty-high-ratio", "0.8"), "must not decrease"),
        (("--cache-dirty-ratio", "2"), "--cache-dirty-ratio: must be a number from 0.1 to 1"),
        (("--cache-flush-seconds", "0"), "--cache-flush-seconds: must be a number of seconds from"),
    ],
)
def test_watermarks_that_make_no_sense_are_named(given: tuple[str, str], says: str) -> None:
    with pytest.raises(BadSettings, match=says):
        Rig(*given)


# -- commands, and as a process --------------------------------------------------------------------


def started(rig: Rig, *arguments: str) -> Any:
    return subprocess.Popen(
        [sys.executable, str(MANAGE), "worker", "cache", *arguments, "--server", rig.url],
        env={**os.environ, "TAGMILL_WORKER_TOKEN": mockapi.TOKEN},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


async def command_of(rig: Rig, *arguments: str) -> tuple[int, str]:
    """The code of `tagmill-worker cache ...`, and what it says."""
    process = started(rig, *arguments)
    code = await ended(rig, process)
    return code, process.stdout.read()


@with_one
def test_flush_and_drain_leave_nothing_dirty_or_say_so(site: Site) -> None:
    given = ("--cache-dir", str(site.directory))

    async def story() -> None:
        rig = site.start()
        await site.evaluate()
        await site.kept()
        # Beside the worker, which drain is not for.
        assert (await command_of(rig, "drain", *given))[0] == command.BAD_SETTINGS
        assert site.images == {}
        code, text = await command_of(rig, "flush", *given)
        assert (code, "nothing is dirty" in text) == (0, True), text
        assert len(site.images) == PARTITIONS
        await rig.stop()
        # By itself: what the worker has not shared.
        site.images.clear()
        for path in site.directory.rglob("*.shared"):
            path.unlink()
        rig = site.idle()
        rig.api.faults["share"].extend([mockapi.problem(413, "too_large")])
        code, text = await command_of(rig, "drain", *given)
        assert (code, text.count("dirty: ")) == (command.DIRTY, 1), text
        code, text = await command_of(rig, "drain", *given)
        assert (code, len(site.images)) == (0, PARTITIONS), text
        await rig.close()

    run(story())


@with_one
def test_a_worker_that_is_killed_while_it_shares_has_lost_nothing(site: Site) -> None:
    """SIGKILL while it writes and flushes, documents changing all the while; then what it has on
    its disk, and what it had shared, is as good as anything."""
    draw = random.Random(13)

    async def story() -> None:
        rig = site.idle()
        for _ in range(KILLS - 2):
            process = spawned(site, rig)
            await rig.api.until(lambda: bool(rig.api.parked))
            await site.evaluate()
            key = draw.choice(list(site.data))
            site.data[key].put(draw.randrange(8), draw.choice([document(draw), None]))
            (site.directory / ASKED).touch()
            rig.api.enqueue({key: dict.fromkeys(XPATH) for key in site.data})
            seen = len(rig.api.requests) + draw.randrange(1, 6)
            # Or it has nothing more to ask for, and writes and shares what it has.
            await rig.api.until(
                lambda seen=seen: len(rig.api.requests) >= seen or bool(rig.api.parked)
            )
            await deferLater(rig.reactor, draw.uniform(0, 0.05))
            process.kill()
            await ended(rig, process)
            await polled(rig.reactor, lambda: not rig.api.parked)
            process.stderr.close()
        # On its own disk, on an empty one with what was shared, and then on that.
        for name in ("one", "two", "two"):
            site.elsewhere(name)
            process = spawned(site, rig)
            await rig.api.until(lambda: bool(rig.api.parked))
            await site.evaluate()
            process.send_signal(signal.SIGTERM)
            assert await ended(rig, process) == 0
            assert b"damaged" not in process.stderr.read()
        await rig.close()
        assert command.main(["verify", "--cache-dir", str(site.directory)], {}) == 0

    run(story(), seconds=120)


# -- by themselves --------------------------------------------------------------------------------


@with_one
def test_a_bundle_is_of_this_kind_of_worker(evaluator: str) -> None:
    assert bundle.schema("lxml") != bundle.schema(evaluator)
    assert images.parts(images.name(INCARNATION, 1, bundle.schema(evaluator), "0" * 64))
    with pytest.raises(AnswerTooLarge):
        bundle.unpack_image(bomb())
    with pytest.raises(ProtocolError):
        bundle.unpack(b"TAGMILLS" + bytes(3), INCARNATION, 1, 1)
