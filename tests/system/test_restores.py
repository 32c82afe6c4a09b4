"""The database goes back to an earlier state under a server, its caches and workers that go on.

A document is stored and evaluated, the database forgets it, and another gets the same revision.
What is shown as fresh from then on is what the documents say: with the workers that held the
document, with one that asks the server's cache, and for a client that has an entity tag.
"""

from __future__ import annotations

import http.client
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtest.rig.http import Api, ApiProblem
from loadtest.rig.postgres import Postgres
from loadtest.rig.stack import Stack, free_port, running
from tests.support.fleet import BARE, GPU, HAS_GPU
from tests.system.test_database_restart import eventually, prepare

NODES = ("a", "b", "c")

pytestmark = pytest.mark.proof


class Site:
    """A server and two workers; a database with a replica. `primary` is the one that is written."""

    def __init__(
        self, directory: Path, primary: Postgres, replica: Postgres, stack: Stack, token: str
    ) -> None:
        self.directory = directory
        self.primary = primary
        self.replica = replica
        self.stack = stack
        self._header = {"Authorization": f"Token {token}"}
        self.api = Api(stack.url, token)

    def put(self, node: str, xml: bytes) -> int:
        """Upload as often as it takes; the node's rev."""
        path = f"nodes/{node}/document"

        def stored() -> bool:
            try:
                self.api.put_xml(path, xml)
            except ApiProblem as problem:
                assert problem.status == 503, problem
                return False
            return True

        eventually(stored)
        with self.primary.connect() as connection:
            found = connection.execute("SELECT rev FROM node WHERE system_id = %s", [node])
            return int(found.fetchone()[0])  # type: ignore[index]

    def shown(self) -> tuple[str, set[str]]:
        """The tag's state, and then its nodes."""
        state = self.api.get("tags/gpu")["state"]
        rows = self.api.get("tags/gpu/nodes")["results"]
        return state, {row["system_id"] for row in rows}

    def fresh(self) -> set[str]:
        """A tag's nodes as soon as they are shown as fresh."""
        found: list[tuple[str, set[str]]] = []

        def is_fresh() -> bool:
            self.stack.check()
            found.append(self.shown())
            return found[-1][0] == "ready"

        eventually(is_fresh)
        return found[-1][1]

    def entity_tag(self, known: str = "-") -> tuple[int, str]:
        host, _, port = self.stack.listen.partition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        headers = {**self._header, "If-None-Match": known}
        connection.request("GET", "/api/v1/tags/gpu/nodes", headers=headers)
        answer = connection.getresponse()
        connection.close()
        return answer.status, answer.headers["ETag"]

    def incarnation(self) -> Any:
        with self.primary.connect() as connection:
            return connection.execute("SELECT uuid FROM current_incarnation").fetchone()


@pytest.fixture(scope="module")
def site(django_db_blocker: Any) -> Iterator[Site]:
    # Not pytest's: sockets have short paths, and another run of pytest by root takes the user of
    # PostgreSQL the right to be there.
    with tempfile.TemporaryDirectory() as made:
        yield from _site(Path(made), django_db_blocker)


def _site(directory: Path, blocker: Any) -> Iterator[Site]:
    with pytest.MonkeyPatch.context() as patch:
        primary = Postgres(directory / "p")
        patch.setenv("TAGMILL_VAR", str(directory / "var"))
        patch.setenv("TAGMILL_HEARTBEAT_SECONDS", "1")
        clusters = [primary]
        try:
            primary.start()
            with blocker.unblock():
                token, api_token = prepare(primary.url)
            replica = Postgres(directory / "q", primary)
            clusters.append(replica)
            replica.start()
            both = f"{primary.url},{replica.socket}&target_session_attrs=read-write"
            patch.setenv("DATABASE_URL", both)
            with running(Stack(f"127.0.0.1:{free_port()}", token, directory / "log")) as stack:
                stack.start_server()
                # What is on their disks is of one incarnation, too.
                stack.start_workers(2, cache=directory / "cache")
                made = Site(directory, primary, replica, stack, api_token)
                made.api.post("clusters/", {"name": "north"})
                for node in NODES:
                    made.api.post("nodes/", {"system_id": node})
                made.api.post("tags/", {"name": "gpu", "definition": HAS_GPU})
                yield made
        finally:
            for cluster in clusters:
                if cluster.is_running:
                    cluster.stop("immediate")


def by_dump(site: Site) -> Callable[[], None]:
    file = site.primary.socket / "dump"
    site.primary.dump(file)
    return lambda: site.primary.restore(file)


def by_files(site: Site) -> Callable[[], None]:
    """A snapshot of the disk: the system identifier and the timeline are the same."""
    copy = site.directory / "copy"
    site.primary.stop()
    site.primary.copy(copy)
    site.primary.start()

    def restore() -> None:
        site.primary.stop("immediate")
        site.primary.go_back(copy)
        site.primary.start()

    return restore


def by_failover(site: Site) -> Callable[[], None]:
    """A replica is promoted that has not got the last transactions."""
    with site.primary.connect() as primary, site.replica.connect() as replica:
        written = primary.execute("SELECT pg_current_wal_lsn()::text").fetchone()
        caught_up = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        eventually(lambda: replica.execute(caught_up, written).fetchone() == (True,))
        replica.execute("ALTER SYSTEM SET primary_conninfo = ''")
        replica.execute("SELECT pg_reload_conf()")
        receiving = "SELECT count(*) FROM pg_stat_wal_receiver"
        eventually(lambda: replica.execute(receiving).fetchone() == (0,))

    def promote() -> None:
        site.primary.stop("immediate")
        site.replica.promote()
        site.primary, site.replica = site.replica, site.primary

    return promote


@pytest.mark.parametrize("backup", [by_dump, by_files, by_failover])
def test_nothing_untrue_is_shown_as_fresh_after_the_database_went_back(
    site: Site, backup: Callable[[Site], Callable[[], None]]
) -> None:
    for node in NODES:
        site.put(node, BARE)
    assert site.fresh() == set()
    before = site.incarnation()
    restore = backup(site)
    # It is evaluated, held, cached and seen; and lost.
    lost = site.put("a", GPU)
    assert site.fresh() == {"a"}
    _, seen = site.entity_tag()
    restore()
    assert site.put("b", GPU) == lost
    assert site.fresh() == {"b"}
    assert site.incarnation() not in (before, None)
    # A worker that holds nothing gets what the server says of these revs.
    site.stack.stop_workers()
    site.stack.start_workers(1)
    site.api.post("tags/gpu/rebuild")
    assert site.fresh() == {"b"}
    assert site.entity_tag(seen)[0] == 200
    site.put("c", GPU)
    assert site.fresh() == {"b", "c"}


def test_a_dump_in_another_database_is_of_no_known_history(site: Site) -> None:
    file = site.primary.socket / "beside"
    site.primary.dump(file)
    site.primary.restore_beside(file, "beside")
    with site.primary.connect("beside") as connection:
        stored = connection.execute("SELECT uuid FROM incarnation").fetchone()
        found = connection.execute("SELECT uuid FROM current_incarnation").fetchone()
    assert site.incarnation() == stored
    assert found is None
