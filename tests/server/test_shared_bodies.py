"""Two API servers that share bodies in real memcached servers, each its own first."""

from __future__ import annotations

import http.client
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from django.db import connections

from loadtest.rig.stack import Stack
from tagmill.fleet import clusters
from tagmill.flows import ingest
from tagmill.tags import assignments, tags
from tests.server.test_serve import call, token_of
from tests.support.memcached import Memcached
from tests.support.race import PATIENCE, Trouble, list_all
from tests.support.servers import server
from tests.support.threads import at_once

PATH = "/api/v1/tags/all/nodes"
NODES = ("a", "b", "c", "d")
READERS = 4
# As behind a balancer: addresses in a body are those of who asked.
HOST = {"Host": "localhost"}


class Pair:
    def __init__(self, folder: Path) -> None:
        self.caches = [Memcached(), Memcached(), Memcached()]
        self.listed = folder / "members"
        list_all(self.caches, self.listed)
        self.stacks: list[Stack] = []


@pytest.fixture(scope="module")
def started(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pair = Pair(tmp_path_factory.mktemp("members"))
    running = []
    try:
        for cache in pair.caches[:2]:
            running.append(
                server(
                    tmp_path_factory.mktemp("server"),
                    TAGMILL_CACHE_SERVERS=f"{cache.place},file:{pair.listed}",
                    TAGMILL_CACHE_SERVER_SECONDS=str(PATIENCE),
                )
            )
            pair.stacks.append(next(running[-1]))
        yield pair
    finally:
        for one in reversed(running):
            next(one, None)
        for cache in pair.caches:
            cache.stop()


@pytest.fixture
def pair(transactional_db: None, started: Pair) -> Pair:
    clusters.create("north")
    tags.create("all")
    name_all(0)
    assignments.assign("all", list(NODES), [])
    return started


def name_all(number: int) -> None:
    """All nodes in one transaction."""
    ingest.store([ingest.Upload(name, hostname=f"h{number}") for name in NODES])


def misses(stack: Stack) -> int:
    with urlopen(f"{stack.url}/metrics") as answer:
        text = answer.read().decode()
    pattern = r'^tagmill_body_cache_total{keyspace="tag_nodes",outcome="miss"} (\S+)$'
    found = re.search(pattern, text, re.MULTILINE)
    return int(float(found[1])) if found else 0


def test_concurrent_misses_at_both_servers_make_one_build(pair: Pair) -> None:
    header = token_of("viewer")
    for stack in pair.stacks:
        call(stack, "GET", PATH, Authorization=header, **HOST)
    for number in range(1, 4):
        name_all(number)
        before = sum(map(misses, pair.stacks))
        asked = [
            lambda stack=stack: call(stack, "GET", PATH, Authorization=header, **HOST)
            for stack in pair.stacks * 4
        ]
        answers = at_once(*asked)
        assert {answer[0].status for answer in answers} == {200}
        assert len({answer[1] for answer in answers}) == 1
        assert sum(map(misses, pair.stacks)) == before + 1


def test_no_answer_is_old_or_torn_while_cache_servers_are_in_trouble(pair: Pair) -> None:
    """Readers note what is committed before they ask: an answer shows that, or more, and all of it
    as of one moment."""
    reads = int(os.environ.get("TAGMILL_RACE_READS", "300"))
    stop, lock, header = threading.Event(), threading.Lock(), token_of("viewer")
    committed, wrong, done = [0], [], [0]
    trouble = Trouble(pair.caches, stop, pair.listed)
    end = time.monotonic() + max(20.0, reads / 50)

    def read(number: int) -> None:
        host, _, port = pair.stacks[number % 2].listen.partition(":")
        client = http.client.HTTPConnection(host, int(port), timeout=30)
        while not stop.is_set():
            least = committed[0]
            client.request("GET", PATH, headers={**HOST, "Authorization": header})
            found = json.loads(client.getresponse().read())["results"]
            shown = {int(node["hostname"][1:]) for node in found}
            with lock:
                if len(shown) != 1 or min(shown) < least or len(found) != len(NODES):
                    wrong.append((least, found))
                done[0] += 1
                if done[0] >= reads or time.monotonic() > end:
                    stop.set()
        client.close()

    def write() -> None:
        number = 0
        while not stop.wait(0.02):
            number += 1
            name_all(number)
            committed[0] = number
        connections.close_all()

    work = [threading.Thread(target=read, args=(number,)) for number in range(READERS)]
    work += [threading.Thread(target=write), threading.Thread(target=trouble.run)]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    # `make race` shows it.
    print(f"\nover HTTP: {done[0]} reads, {committed[0]} writes, {trouble.count} disturbances,")
    print(f"{len(wrong)} old or torn; {sum(map(misses, pair.stacks))} builds")
    assert wrong == []
    assert done[0] >= reads
    assert committed[0] > 0
    assert trouble.count > 0
