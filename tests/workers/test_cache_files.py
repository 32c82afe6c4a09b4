"""What the cache's files are believed for, and which of them stay."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from tagmill_worker.cache import files, folders
from tagmill_worker.cache.entries import Entries, Entry
from tagmill_worker.cache.files import Damaged, Place, Stored
from tagmill_worker.pages import Page
from tagmill_worker.store import IDLE_SECONDS

ROOT = Path(__file__).parents[2]
KILLS = 8


def page(rev: int, data: bytes = b"x" * 50, partition: int = 1) -> Page:
    return Page(partition, rev, None, False, data)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, "first", 1)


def stored(place: Place) -> list[Stored]:
    return folders.find(place).chain


def test_a_partition_is_its_newest_whole_fetch_and_the_deltas_after_it(place: Place) -> None:
    files.write(place, 1, None, 3, [page(3, b"old")])
    files.write(place, 2, 3, 4, [page(4, b"older delta")])
    files.write(place, 3, None, 5, [page(5, b"base"), page(6, b"second")])
    files.write(place, 4, 5, 8, [page(8, b"delta")])
    files.write(place, 5, 8, 9, [])
    chain = stored(place)
    assert [item.head.number for item in chain] == [3, 4, 5]
    assert chain[-1].head.rev == 9
    read = [item for one in chain for item in files.read(one)]
    assert [(item.rev, item.data) for item in read] == [
        (5, b"base"),
        (6, b"second"),
        (8, b"delta"),
    ]
    found = folders.find(place)
    assert sorted(int(path.name[:8]) for path in found.rest) == [1, 2]


def test_a_delta_that_is_missing_leaves_the_partition_at_an_older_rev(place: Place) -> None:
    files.write(place, 1, None, 5, [page(5)])
    gone = files.write(place, 2, 5, 6, [page(6)])
    files.write(place, 3, 6, 7, [page(7)])
    gone.path.unlink()
    assert [item.head.rev for item in stored(place)] == [5]
    # Nor one that begins after what is there.
    files.write(place, 2, 6, 8, [page(8)])
    assert [item.head.rev for item in stored(place)] == [5]


def test_no_byte_of_a_file_may_be_another(place: Place) -> None:
    made = files.write(place, 1, None, 5, [page(5, b"a" * 40), page(6, b"b" * 40)])
    whole = made.path.read_bytes()
    for at in range(len(whole)):
        made.path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(Damaged):
            files.read(files.look(made.path))
    for size in range(len(whole)):
        made.path.write_bytes(whole[:size])
        with pytest.raises(Damaged):
            files.look(made.path)
    made.path.write_bytes(whole + b"more")
    with pytest.raises(Damaged):
        files.look(made.path)
    made.path.write_bytes(whole)
    assert len(files.read(files.look(made.path))) == 2


@pytest.mark.parametrize("other", [Place(Path(), "first", 2), Place(Path(), "second", 1)])
def test_a_file_is_of_its_place_alone(place: Place, other: Place) -> None:
    made = files.write(place, 1, None, 5, [page(5)])
    there = Place(place.directory, other.incarnation, other.partition).folder
    there.mkdir(parents=True)
    moved = made.path.rename(there / made.path.name)
    with pytest.raises(Damaged, match="partition 1 in incarnation first"):
        files.look(moved)
    renamed = moved.rename(place.folder / moved.name.replace("-5-", "-7-"))
    with pytest.raises(Damaged, match="another file's"):
        files.look(renamed)


def test_what_was_not_believed_takes_little_room(place: Place) -> None:
    for number in range(folders.MAX_ASIDE + 3):
        made = files.write(place, number + 1, None, 5, [page(5)])
        folders.set_aside(place.directory, made.path)
    assert len(list((place.directory / files.ASIDE).iterdir())) == folders.MAX_ASIDE
    assert 0 < folders.aside_bytes(place.directory) < 5000


# Writes partitions and their deltas for ever, and says so before each; what each must be at each
# rev follows from the rev.
WRITER = """
import random, sys
from pathlib import Path
from tagmill_worker.cache import files, folders
from tagmill_worker.pages import Page

draw = random.Random(int(sys.argv[2]))
revs, numbers = {}, {}
while True:
    sys.stdout.write("next\\n")
    sys.stdout.flush()
    place = files.Place(Path(sys.argv[1]), "first", draw.randrange(3))
    rev = revs.get(place.partition, 0)
    since = rev if rev and draw.random() < 0.7 else None
    revs[place.partition] = rev = rev + draw.randrange(1, 4)
    numbers[place.partition] = number = numbers.get(place.partition, 0) + 1
    data = (b"%d since %s of %d;" % (rev, str(since).encode(), place.partition)) * 2000
    files.write(place, number, since, rev, [Page(place.partition, rev, None, False, data)])
    if since is None:
        folders.tidy(place)
"""


def not_damaged(path: Path, reason: str) -> None:
    raise AssertionError(f"{path}: {reason}")


def test_a_writer_that_is_killed_leaves_nothing_that_is_believed_wrongly(tmp_path: Path) -> None:
    """At any moment: SIGKILL while it writes, again and again, over what the last one left."""
    draw = random.Random(5)
    seen = 0
    for kill in range(KILLS):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(kill)],
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert process.stdout is not None
        for _ in range(draw.randrange(1, 25)):
            process.stdout.readline()
        process.kill()
        process.wait()
        process.stdout.close()
        # A kill tears nothing: what was not finished has no name yet.
        found = folders.open_incarnation(tmp_path, "first", not_damaged)
        for item in found:
            reached = 0
            for one in item.chain:
                head = one.head
                (only,) = files.read(one)
                expected = f"{head.rev} since {head.since} of {item.partition};" * 2000
                assert only.data.decode() == expected
                assert head.since is None or head.since <= reached
                reached = head.rev
                seen += 1
        # The next one's revs begin anew.
        for item in found:
            folders.delete_partition(Place(tmp_path, "first", item.partition))
    assert seen > KILLS


# -- which stay ---------------------------------------------------------------------------------


def entries(clock: Clock, count: int, most: int = 100) -> Entries:
    made = Entries(most, 0.7, clock.seconds)
    for key in range(count):
        made.add(Entry(key, 1, 1, 10))
    return made


def partitions(made: Entries) -> list[int]:
    return [entry.partition for entry in made]


def test_above_the_full_ratio_newcomers_pass_until_something_is_idle() -> None:
    clock = Clock()
    made = entries(clock, 7)
    assert not made.is_full and not made.has_room(10, set())
    assert not made.has_room_for_image(1)
    clock.advance(IDLE_SECONDS + 1)
    for key in range(1, 7):
        made.touch(key)
    assert made.has_room(10, set())
    # Not what a lease uses, however long ago that began.
    assert not made.has_room(10, {0})
    made.add(Entry(7, 1, 1, 10))
    assert [entry.partition for entry in made.surplus(set())] == [0, 7]


def test_eviction_ends_two_percent_below_and_spares_what_is_in_use() -> None:
    clock = Clock()
    made = entries(clock, 700, most=10_000)
    assert made.surplus(set()) == []
    first = made.get(0)
    assert first is not None
    made.grow(first, 10)
    assert {entry.partition for entry in made.surplus({699, 698})} == set(range(677, 698))
    assert made.size == 6800


def test_clean_ones_go_before_dirty_ones_and_none_that_is_on_its_way() -> None:
    """Idle or not: a dirty one costs its work once more, a clean one only a fetch."""
    clock = Clock()
    made = entries(clock, 8)
    for entry in made:
        entry.dirty_since = None if entry.partition == 3 else clock.seconds()
    clock.advance(IDLE_SECONDS + 1)
    made.touch(3)
    first, last = made.get(0), made.get(7)
    assert first is not None and last is not None
    first.is_flushing = last.is_flushing = True
    assert [entry.partition for entry in made.surplus(set())] == [3, 1]


def test_what_is_asked_for_in_a_circle_stays() -> None:
    """Where the oldest would be evicted for the newest, none would ever be hit."""
    clock = Clock()
    made = Entries(1000, 0.7, clock.seconds)
    hits = 0
    for circle in range(5):
        for key in range(100):
            clock.advance(1)
            if made.get(key) is not None:
                made.touch(key)
                hits += circle == 4
            elif made.has_room(10, set()):
                made.add(Entry(key, 1, 1, 10))
            made.surplus(set())
    assert hits == 70


def test_nothing_grows_beyond_all_of_it() -> None:
    made = entries(Clock(), 9)
    assert made.fits(10) and not made.fits(11)
    made.aside = 5
    assert not made.fits(10)


def test_the_head_says_what_the_file_is(place: Place) -> None:
    """So that other versions may read it: the format is not what a module happens to be."""
    made = files.write(place, 3, 4, 5, [page(5, b"data")])
    raw = made.path.read_bytes()
    assert raw[:8] == b"TAGMILLC" and int.from_bytes(raw[8:12], "little") == files.SCHEMA
    size = int.from_bytes(raw[12:16], "little")
    assert json.loads(raw[48 : 48 + size]) == {
        "incarnation": "first",
        "partition": 1,
        "number": 3,
        "since": 4,
        "rev": 5,
        "pages": [[5, 4, files.digest(b"data")]],
    }
    assert raw[48 + size :] == b"data"
