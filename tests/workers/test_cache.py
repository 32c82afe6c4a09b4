"""A worker that starts again with what it kept on its disk, against the mock API."""

from __future__ import annotations

import ctypes
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lxml import etree
from twisted.internet.task import deferLater

from tagmill_worker.cache import command, files, folders
from tagmill_worker.errors import BadSettings
from tagmill_worker.evaluators import base, saved
from tests.workers import mockapi
from tests.workers.running import only_kernel, polled, run, with_one
from tests.workers.test_command import MANAGE, ended
from tests.workers.test_worker import Rig, members

XPATH = {7: "//node[@class='gpu']", 8: "count(//node) > 1", 9: "boolean(//list)"}
PARTITIONS = 3
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
KILLS = 5


pytestmark = pytest.mark.usefixtures("evaluator")


def said(log: list[Any], action: str) -> list[Any]:
    return [line for line in log if line.get("action") == action]


class Life:
    """One worker after the other, on one directory and the same API's data."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.options = options
        self.data: dict[int, mockapi.Partition] = {}
        self.incarnation = "first"
        self.rig: Rig

    def fill(self) -> None:
        draw = random.Random(3)
        for key in range(1, PARTITIONS + 1):
            self.data[key] = mockapi.Partition(key)
            for slot in range(6):
                self.data[key].put(slot, document(draw))

    def start(self, *options: str) -> Rig:
        cache = ("--cache-dir", str(self.directory), "--cache-bytes", "64MiB", "--batch-nodes", "4")
        self.rig = Rig(*cache, *self.options, *options)
        self.rig.api.partitions = self.data
        self.rig.api.expressions = XPATH
        self.rig.api.registration["incarnation"] = self.incarnation
        self.rig.start()
        return self.rig

    async def evaluate(self, *keys: int) -> None:
        """Every expression on these partitions, all of them unless told: as lxml says."""
        before = len(self.rig.api.results)
        wanted = keys or tuple(self.data)
        self.rig.api.matches.clear()
        self.rig.api.enqueue({key: dict.fromkeys(XPATH) for key in wanted})
        await self.rig.results(before + len(wanted))
        for key in wanted:
            for expression, text in XPATH.items():
                assert members(self.rig, expression, key) == true_members(self.data[key], text)

    async def kept(self, images: int | None = None) -> None:
        """Until what was evaluated is on the disk, images included where there are any."""
        if images is None:
            images = 2 * PARTITIONS if self.rig.worker.evaluator.saves_images else 0
        value = self.rig.value
        await polled(
            self.rig.reactor,
            lambda: (
                value("tagmill_worker_cache_images_total", outcome="saved") >= images
                and len(self.partitions()) == len(self.data)
            ),
        )

    async def first(self) -> None:
        """A worker that evaluates all of it, keeps it, and stops."""
        self.start()
        await self.evaluate()
        await self.kept()
        await self.rig.stop()

    def partitions(self) -> list[int]:
        found = [self.place(key) for key in self.data]
        return [p.partition for p in found if p.folder.exists() and folders.find(p).chain]

    def place(self, partition: int) -> files.Place:
        return files.Place(self.directory, self.incarnation, partition)

    def file(self, partition: int, suffix: str = files.PAGES) -> Path:
        return min(path for path in self.place(partition).folder.iterdir() if path.suffix == suffix)


def document(draw: random.Random) -> str:
    inner = "".join(f"<node class='{draw.choice(['gpu', 'cpu'])}'/>" for _ in range(3))
    return draw.choice([f"<list>{inner}</list>", f"<node>{inner}</node>", "<node/>"])


def true_members(partition: mockapi.Partition, text: str) -> list[int]:
    return [
        slot
        for slot, (_, probes) in sorted(partition.nodes.items())
        if probes and etree.fromstring(probes["lshw"]).xpath(f"boolean({text})")
    ]


@pytest.fixture
def life(tmp_path: Path) -> Life:
    made = Life(tmp_path / "cache")
    made.fill()
    return made


def test_a_worker_that_starts_again_asks_for_no_page(life: Life, evaluator: str) -> None:
    """And says what it holds with its first words."""

    async def story() -> None:
        await life.first()
        rig = life.start()
        await life.evaluate()
        await rig.stop()
        assert set(rig.api.asked[0].holds) == {1, 2, 3}
        assert rig.api.pages == []
        assert rig.value("tagmill_worker_cache_reads_total", outcome="hit") == PARTITIONS
        opened = rig.value("tagmill_worker_cache_images_total", outcome="opened")
        assert opened == (2 * PARTITIONS if evaluator == "kernel" else 0)
        assert rig.value("tagmill_worker_cache_off") == 0
        assert rig.value("tagmill_worker_cache_bytes", kind="pages") > 0

    run(story())


def test_what_changed_meanwhile_comes_as_a_delta_and_is_kept(life: Life) -> None:
    """Also tombstones, and what has come since; whatever the next worker starts from."""

    async def story() -> None:
        await life.first()
        for round_ in range(2):
            rev = life.data[1].rev
            life.data[1].put(round_, None)
            life.data[1].put(5, "<list><node class='gpu'/></list>")
            life.data[1].put(7 + round_, "<list/>")
            rig = life.start()
            await life.evaluate()
            await rig.stop()
            assert [page.get("since") for page in rig.api.pages] == [rev]
        chain = folders.find(life.place(1)).chain
        assert [item.head.since is None for item in chain] == [True, False, False]

    run(story())


def test_a_change_alone_reads_nothing_that_is_held(life: Life) -> None:
    async def story() -> None:
        await life.first()
        rig = life.start()
        base_rev = life.data[1].rev
        rig.api.matches = {(7, 1): (base_rev, 0)}
        life.data[1].put(0, "<node class='gpu'/>")
        rig.api.enqueue({1: {7: base_rev}})
        await rig.results(1)
        await rig.stop()
        assert members(rig, 7, 1) == [0]
        assert rig.value("tagmill_worker_cache_reads_total", outcome="hit") == 0

    run(story())


def truncate(life: Life, path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def flip(life: Life, path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def older_schema(life: Life, path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[8:12] = (files.SCHEMA - 1).to_bytes(4, "little")
    path.write_bytes(data)


def foreign(life: Life, path: Path) -> None:
    """Another partition's, by whatever name."""
    path.write_bytes(life.file(2).read_bytes())


def remove(life: Life, path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("damage", [truncate, flip, older_schema, foreign, remove])
def test_a_file_that_is_not_right_is_set_aside_and_fetched_again(
    life: Life, damage: Callable[[Life, Path], None], log: list[Any]
) -> None:
    async def story() -> None:
        await life.first()
        damage(life, life.file(1))
        rig = life.start()
        await life.evaluate()
        await life.kept(0)
        await rig.stop()
        assert {page.get("since") for page in rig.api.pages} == {None}
        assert len(rig.api.pages) == 2
        assert len(said(log, "cache_damaged")) == (damage is not remove)
        aside = life.directory / files.ASIDE
        assert len(list(aside.iterdir()) if aside.exists() else []) == (damage is not remove)
        # It is whole again.
        third = life.start()
        await life.evaluate()
        await third.stop()
        assert third.api.pages == []

    run(story())


def test_files_of_another_version_are_fetched_again_and_are_no_damage(
    life: Life, log: list[Any]
) -> None:
    async def story() -> None:
        await life.first()
        written = life.file(1)
        older_schema(life, written)
        name = written.name.replace(f"-{files.SCHEMA}-", f"-{files.SCHEMA - 1}-")
        written = written.rename(written.with_name(name))
        rig = life.start()
        await life.evaluate()
        await life.kept(0)
        await rig.stop()
        assert {page.get("since") for page in rig.api.pages} == {None}
        assert said(log, "cache_damaged") == [] and not (life.directory / files.ASIDE).exists()
        assert not written.exists()

    run(story())


@only_kernel
@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        (files.IMAGE, truncate),
        (files.IMAGE, "schema"),
        (files.IMAGE, "foreign"),
        (files.SLOTS, flip),
    ],
)
def test_an_image_that_is_not_right_is_made_again_from_its_page(
    life: Life, suffix: str, damage: Any, log: list[Any]
) -> None:
    async def story() -> None:
        await life.first()
        path = life.file(1, suffix)
        if damage == "schema":
            # Its digest is that of what follows, so that only the schema is wrong.
            data = bytearray(path.read_bytes())
            data[8] ^= 3
            path.write_bytes(data)
        elif damage == "foreign":
            # Both of its files, well-formed, of other documents.
            for each in (files.IMAGE, files.SLOTS):
                path.with_suffix(each).write_bytes(life.file(2, each).read_bytes())
        else:
            damage(life, path)
        rig = life.start()
        await life.evaluate()
        await life.kept(1)
        await rig.stop()
        assert rig.api.pages == []
        assert len(said(log, "cache_damaged")) == 1
        assert rig.value("tagmill_worker_cache_images_total", outcome="damaged") == 1
        third = life.start()
        await life.evaluate()
        await third.stop()
        assert third.value("tagmill_worker_cache_images_total", outcome="opened") == 2 * PARTITIONS

    run(story())


@only_kernel
@pytest.mark.parametrize("suffix", folders.IMAGE_FILES)
def test_half_an_image_is_no_damage(life: Life, suffix: str, log: list[Any]) -> None:
    """A worker was killed between its two files: it is made again, and nobody is alarmed."""

    async def story() -> None:
        await life.first()
        life.file(1, suffix).unlink()
        rig = life.start()
        await life.evaluate()
        await life.kept(1)
        await rig.stop()
        assert rig.api.pages == []
        assert said(log, "cache_damaged") == []
        assert rig.value("tagmill_worker_cache_images_total", outcome="damaged") == 0
        opened = rig.value("tagmill_worker_cache_images_total", outcome="opened")
        assert opened == 2 * PARTITIONS - 1

    run(story())


@only_kernel
def test_an_image_that_went_with_its_page_is_no_damage(life: Life, log: list[Any]) -> None:
    """The page was replaced between the question for its image and the answer."""

    async def story() -> None:
        await life.first()
        rig = life.start()
        await life.evaluate()
        cache: Any = rig.worker.evaluator._images
        cache.image_opened(life.place(1).folder / ("0" * 64), "No such file or directory")
        await rig.stop()
        assert said(log, "cache_damaged") == []
        assert rig.value("tagmill_worker_cache_images_total", outcome="damaged") == 0

    run(story())


@only_kernel
def test_an_image_of_another_version_is_not_used(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel: Any = base.load("kernel")

    async def story() -> None:
        await life.first()

    run(story())
    stem = life.file(1, files.IMAGE).with_suffix("")
    assert saved.load(kernel, stem, lambda: [], 0.0).slots
    monkeypatch.setattr(type(kernel), "version", "another")
    with pytest.raises(saved.ImageRefused, match="made by"):
        saved.load(kernel, stem, lambda: [], 0.0)


def test_what_is_of_another_incarnation_is_never_used_and_goes(life: Life) -> None:
    """The same revs, of other documents: before the start, and while it runs."""

    async def story() -> None:
        await life.first()
        rig = life.rig
        for incarnation in ("second", "third"):
            life.incarnation = incarnation
            for partition in life.data.values():
                for slot, (rev, _) in list(partition.nodes.items()):
                    partition.nodes[slot] = (rev, {"lshw": f"<{incarnation}/>"})
            if incarnation == "second":
                rig = life.start()
            else:
                rig.api.registration["incarnation"] = incarnation
                # It hears of it by a lease.
                rig.api.enqueue({1: dict.fromkeys(XPATH)})
                await rig.api.until(lambda rig=rig: len(rig.api.registered) == 2)
            await life.evaluate()
            await life.kept(0)
        await rig.stop()
        assert rig.api.asked[0].holds == []
        # What a child was saving when its place was deleted goes with the next start.
        last = life.start()
        await last.api.until(lambda: bool(last.api.parked))
        await last.stop()
        assert [path.name for path in life.directory.iterdir() if path.is_dir()] == ["third"]

    run(story())


@with_one
def test_a_rev_that_the_server_has_never_had_is_dropped(life: Life) -> None:
    async def story() -> None:
        await life.first()
        rig = life.start()
        refusal = mockapi.problem(400, "invalid")
        rig.api.faults["batch"].append(refusal)
        # The server is behind, in what it believes to be the same history.
        life.data[1].put(0, "<node class='gpu'/>")
        rig.api.enqueue({1: dict.fromkeys(XPATH)})
        await rig.api.until(lambda: bool(rig.api.given_up))
        await life.evaluate(1)
        await rig.stop()
        assert [page.get("since") for page in rig.api.pages] == [None, None]

    run(story())


def test_a_disk_that_has_more_than_memory_takes(life: Life) -> None:
    """Nothing in memory between leases: each is read again, and forgotten again."""
    life.options = ("--store-bytes", "0")

    async def story() -> None:
        rig = life.start()
        await life.evaluate()
        await life.kept()
        fetched = len(rig.api.pages)
        for _ in range(2):
            await life.evaluate()
        life.data[2].put(3, "<list/>")
        await life.evaluate()
        await polled(rig.reactor, lambda: not rig.worker.evaluator._hot)
        await rig.stop()
        assert [page.get("since") for page in rig.api.pages[fetched:]] == [6]
        assert rig.value("tagmill_worker_cache_reads_total", outcome="hit") == 3 * PARTITIONS

    run(story())


def test_a_tier_without_room_lets_newcomers_pass(life: Life) -> None:
    low = ("--cache-dirty-ratio", "0.1", "--cache-dirty-high-ratio", "0.1")
    life.options = ("--cache-full-ratio", "0.1", "--cache-bytes", "1MiB", *low)
    big = f"<list>{random.Random(1).randbytes(60_000).hex()}</list>"
    for partition in life.data.values():
        partition.put(0, big)

    async def story() -> None:
        rig = life.start()
        await life.evaluate()
        await polled(rig.reactor, lambda: rig.value("tagmill_worker_cache_partitions") == 1)
        await life.evaluate()
        await rig.stop()
        assert rig.value("tagmill_worker_cache_passed_total") > 0
        assert rig.value("tagmill_worker_cache_off") == 0
        second = life.start()
        await life.evaluate()
        await second.stop()
        assert len(second.api.asked[0].holds) == 1

    run(story())


def test_a_directory_that_vanishes_ends_the_tier_and_not_the_work(
    life: Life, log: list[Any]
) -> None:
    async def story() -> None:
        rig = life.start()
        await life.evaluate()
        await life.kept()
        life.directory.rename(life.directory.with_name("elsewhere"))
        for partition in life.data.values():
            partition.put(2, "<list/>")
        await life.evaluate()
        await polled(rig.reactor, lambda: rig.value("tagmill_worker_cache_off") == 1)
        await life.evaluate()
        await rig.stop()
        assert len(said(log, "cache_off")) == 1
        assert rig.value("tagmill_worker_cache_bytes", kind="pages") == 0

    run(story())


@with_one
def test_a_directory_that_cannot_be_made_is_a_tier_that_is_off(life: Life) -> None:
    life.directory = Path("/proc/tagmill/cache")

    async def story() -> None:
        rig = life.start()
        await life.evaluate()
        await rig.stop()
        assert rig.value("tagmill_worker_cache_off") == 1

    run(story())


@with_one
def test_a_directory_is_of_one_worker_alone(life: Life, tmp_path: Path) -> None:
    async def story() -> None:
        rig = life.start()
        await rig.api.until(lambda: bool(rig.api.parked))
        with pytest.raises(BadSettings, match=f"another worker .process {os.getpid()}.*its own"):
            life.start()
        life.rig = rig
        await rig.stop()
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "thesis.tex").write_text("years of work")
        life.directory = tmp_path / "mine"
        with pytest.raises(BadSettings, match="files of somebody else"):
            life.start()
        assert [path.name for path in life.directory.iterdir()] == ["thesis.tex"]

    run(story())


# -- as a process -------------------------------------------------------------------------------


def small_files() -> None:
    """As on a full disk: what is written beyond is refused."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))


def no_override() -> None:
    """Root, too, may not write where the mode says so."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)


def spawned(life: Life, rig: Rig, before: Callable[[], None] | None = None) -> Any:
    return subprocess.Popen(
        [
            *(sys.executable, str(MANAGE), "worker", "--server", rig.url),
            *("--cache-dir", str(life.directory), "--cache-bytes", "64MiB"),
            *("--batch-nodes", "4"),
        ],
        # Where files are cut short, those of Python's cache would be, too.
        env={
            **os.environ,
            "TAGMILL_WORKER_TOKEN": mockapi.TOKEN,
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        stderr=subprocess.PIPE,
        preexec_fn=before,  # noqa: PLW1509 - neither takes a lock
    )


def idle(life: Life) -> Rig:
    """An API for workers that are processes."""
    life.rig = rig = Rig()
    rig.api.partitions = life.data
    rig.api.expressions = XPATH
    return rig


@with_one
@pytest.mark.parametrize("trouble", ["full", "read-only"])
def test_a_disk_that_takes_nothing_ends_the_tier_and_not_the_work(life: Life, trouble: str) -> None:
    async def story() -> None:
        rig = idle(life)
        life.directory.mkdir()
        (life.directory / "first").mkdir()
        (life.directory / "tagmill-cache.lock").touch()
        life.data[2].put(0, f"<list>{random.Random(1).randbytes(20_000).hex()}</list>")
        if trouble == "read-only":
            (life.directory / "first").chmod(0o500)
        process = spawned(life, rig, small_files if trouble == "full" else no_override)
        await life.evaluate()
        life.data[1].put(0, "<list/>")
        await life.evaluate()
        process.send_signal(signal.SIGTERM)
        assert await ended(rig, process) == 0
        lines = process.stderr.read().decode()
        assert lines.count('"cache_off"') == 1, lines
        assert ("File too large" if trouble == "full" else "Permission denied") in lines
        await rig.close()

    run(story())


@with_one
def test_a_worker_that_is_killed_at_any_moment_is_right_when_it_starts_again(life: Life) -> None:
    """SIGKILL while it fetches, evaluates and writes; documents change all the while."""
    draw = random.Random(11)

    async def story() -> None:
        rig = idle(life)
        for _ in range(KILLS):
            process = spawned(life, rig)
            await rig.api.until(lambda: bool(rig.api.parked))
            # Whatever the last one left must be as good as anything.
            await life.evaluate()
            key = draw.choice(list(life.data))
            life.data[key].put(draw.randrange(8), draw.choice([document(draw), None]))
            # The page that changed, some results, and the next lease.
            seen = len(rig.api.requests) + draw.randrange(1, 4)
            rig.api.enqueue({key: dict.fromkeys(XPATH) for key in life.data})
            await rig.api.until(lambda seen=seen: len(rig.api.requests) >= seen)
            await deferLater(rig.reactor, draw.uniform(0, 0.05))
            process.kill()
            await ended(rig, process)
            await polled(rig.reactor, lambda: not rig.api.parked)
            process.stderr.close()
        process = spawned(life, rig)
        await rig.api.until(lambda: bool(rig.api.parked))
        await life.evaluate()
        process.send_signal(signal.SIGTERM)
        assert await ended(rig, process) == 0
        assert b"cache_damaged" not in process.stderr.read()
        await rig.close()
        assert command.main(["verify", "--cache-dir", str(life.directory)], {}) == 0

    run(story(), seconds=120)


def test_the_command_says_what_there_is_and_what_is_wrong(
    life: Life, evaluator: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story() -> None:
        life.start()
        await life.evaluate()
        await life.kept()
        # Beside the worker.
        assert command.main(["verify"], {command.VARIABLE: str(life.directory)}) == 0
        await life.rig.stop()

    run(story())
    given = ["--cache-dir", str(life.directory)]
    assert command.main(["status", *given], {}) == 0
    status = capsys.readouterr().out
    assert "partitions   3" in status and "incarnation first" in status
    assert f"{2 * PARTITIONS if evaluator == 'kernel' else 0} pages" in status
    flip(life, life.file(1))
    truncate(life, life.file(2))
    assert command.main(["verify", *given], {}) == command.DAMAGED
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if files.PAGES in line]) == 2
    assert command.main(["status", "--cache-dir", str(life.directory / "no")], {}) == 2
    assert command.main(["status"], {}) == command.BAD_SETTINGS


@with_one
def test_options_of_the_cache_go_together() -> None:
    with pytest.raises(BadSettings, match="--cache-dir and --cache-bytes"):
        Rig("--cache-dir", "/tmp/x")
    with pytest.raises(BadSettings, match="--cache-full-ratio"):
        Rig("--cache-full-ratio", "1.1")
