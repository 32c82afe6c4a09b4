"""`bench upgrade`: the previous version's servers and workers beside this one's, under load."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tarfile
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import psycopg
from rich.console import Console
from rich.table import Table

from loadtest.bench import Bench, BenchError, Session, machine
from loadtest.chaos import checks
from loadtest.chaos.ledger import Ledger, stored_documents
from loadtest.chaos.network import Network
from loadtest.chaos.site import DATABASE, LOOK_SECONDS, SETTINGS, add_sizes, check_site
from loadtest.chaos.traffic import Traffic, define
from loadtest.rig.postgres import Postgres, PostgresError
from loadtest.rig.scratch import using
from loadtest.rig.stack import ROOT, Stack, free_port

SERVERS = ("server-1", "server-2")
WORKERS = ("worker-1", "worker-2")
COMMAND_SECONDS = 120.0
MAX_SECONDS = 600.0
MAX_SHOWN = 5
THIS, PREVIOUS = "this", "previous"


class UpgradeBench(Bench):
    name = "upgrade"
    help = "the version before beside this one, server by server and worker by worker, under load"
    needs_database = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_sizes(parser)
        parser.add_argument(
            "--previous", required=True, metavar="REF", help="a commit, or a folder that has one"
        )
        parser.add_argument("--seconds", type=float, default=10.0, help="how long a step lasts")
        parser.add_argument("--evaluator", default="auto", help="of the previous version's workers")

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        check_site(options, MAX_SECONDS)
        try:
            previous = checked_out(options["previous"], session.log / "previous")
            with _Site.made(previous, options, session.log) as site, using(site.database):
                site.begin()
                return _Steps(site, options, session.console).all()
        except (PostgresError, psycopg.Error) as error:
            raise BenchError(f"the database: {error}") from error

    def show(self, console: Console, result: dict[str, Any]) -> None:
        table = Table(
            "what runs",
            "lost",
            "wrong",
            "answered",
            "repeated",
            "errors in logs",
            "in those of before",
        )
        for row in result["steps"]:
            counts = (row["wrong_answers"], row["answered"], row["busy"] + row["cut"])
            errors = (row["errors"], row["errors_of_before"])
            table.add_row(row["says"], str(len(row["lost"])), *map(str, (*counts, *errors)))
        console.print(table)

    def fault(self, result: dict[str, Any]) -> str | None:
        found = [*result["wrong"]]
        for row in result["steps"]:
            found += row["lost"]
            if row["wrong_answers"]:
                found.append(f"{row['says']}: {row['wrong_answers']} answers differ from lxml's")
            if row["errors"]:
                found.append(f"{row['says']}: {'; '.join(row['shown'])}")
        return "; ".join(found[:10]) or None


def checked_out(previous: str, place: Path) -> Path:
    """The folder, or one with the files of the commit. Raises BenchError."""
    if (Path(previous) / "manage.py").is_file():
        return Path(previous).resolve()
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", previous]
    done = subprocess.run(command, check=False, capture_output=True)  # noqa: S603
    if done.returncode:
        raise BenchError(f"no commit {previous!r} here: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as files:
        files.extractall(place, filter="data")
    return place


class _Site:
    """A PostgreSQL, two servers behind a balancer and two workers, each of either version."""

    def __init__(self, previous: Path, options: Mapping[str, Any], directory: Path) -> None:
        self.previous, self._directory, self._options = previous, directory, options
        self.network = Network()
        self.postgres = Postgres(directory / "p", settings=DATABASE)
        self.database = self.postgres.url
        self.listens = {name: f"127.0.0.1:{free_port()}" for name in SERVERS}
        places = [("127.0.0.1", int(one.rpartition(":")[2])) for one in self.listens.values()]
        self.front, self.back = self.network.wire(*places), self.network.wire(*places)
        self.stacks: dict[str, Stack] = {}
        self.token = self._worker_token = ""
        self._read: Counter[Path] = Counter()

    @classmethod
    @contextlib.contextmanager
    def made(cls, previous: Path, options: Mapping[str, Any], directory: Path) -> Iterator[_Site]:
        site = cls(previous, options, directory)
        try:
            site.postgres.start()
            yield site
        finally:
            for stack in reversed(site.stacks.values()):
                stack.stop()
            site.network.close()
            if site.postgres.is_alive:
                site.postgres.stop("immediate")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.front.port}"

    @property
    def environment(self) -> dict[str, str]:
        return {**SETTINGS, "DATABASE_URL": self.database}

    def look(self) -> None:
        for stack in self.stacks.values():
            stack.check()

    def rest(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look()
            time.sleep(LOOK_SECONDS)

    def command(self, root: Path, *arguments: str) -> str:
        """What a command of a version prints. Raises BenchError."""
        environment = {**os.environ, **self.environment, "TAGMILL_VAR": str(self._directory / "v")}
        environment.pop("PYTHONPATH", None)
        done = subprocess.run(  # noqa: S603 - our own commands
            [sys.executable, str(root / "manage.py"), *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            env=environment,
        )
        if done.returncode:
            raise BenchError(f"{' '.join(arguments)}: {(done.stderr or done.stdout)[-500:]}")
        return done.stdout.strip()

    def begin(self) -> None:
        """The previous version alone."""
        self.command(self.previous, "migrate")
        fleet = ("--nodes", str(self._options["nodes"]), "--seed", "5")
        self.command(self.previous, "generate_fleet", *fleet)
        user = ("create_token", "--user", "upgrade", "--role", "admin")
        self.token = self.command(self.previous, *user).splitlines()[-1]
        worker = ("worker_token", "upgrade", "--all-clusters")
        self._worker_token = self.command(self.previous, *worker).splitlines()[-1]
        for name in (*SERVERS, *WORKERS):
            self.put(name, self.previous)

    def put(self, name: str, root: Path) -> None:
        """Have this part of that version from now on: it ends as an operator ends it, and another
        begins."""
        if name in self.stacks:
            self.stacks.pop(name).stop()
        version = THIS if root == ROOT else PREVIOUS
        listen = self.listens.get(name, f"127.0.0.1:{self.back.port}")
        environment = {**self.environment, "TAGMILL_VAR": str(self._directory / f"var-{name}")}
        log = self._directory / f"log-{name}-{version}"
        stack = Stack(listen, self._worker_token, log, environment, root)
        self.stacks[name] = stack
        if name in SERVERS:
            stack.start_server()
            return
        chosen = () if root == ROOT else ("--evaluator", self._options["evaluator"])
        stack.start_worker(name, *chosen, cache=self._directory / "cache")

    def errors(self, version: str) -> list[str]:
        """Lines of a version's logs with the level error, since this was asked last."""
        found = []
        for file in sorted(self._directory.glob(f"log-*-{version}/*.log")):
            with file.open("rb") as lines:
                lines.seek(self._read[file])
                found += [text for line in lines if (text := _error(file, line))]
                self._read[file] = lines.tell()
        return found


def _error(file: Path, line: bytes) -> str:
    with contextlib.suppress(orjson.JSONDecodeError):
        said = orjson.loads(line)
        if isinstance(said, dict) and said.get("level") in {"error", "critical"}:
            about = (said.get(name) for name in ("event", "action", "error"))
            return f"{file.parent.name}: {' '.join(str(one) for one in about if one)}"
    return ""


class _Steps:
    def __init__(self, site: _Site, options: Mapping[str, Any], console: Console) -> None:
        self._site, self._options, self._console = site, options, console
        self._ledger = Ledger()
        for system_id, xml in stored_documents().items():
            self._ledger.stored(system_id, xml)
        self._traffic = Traffic(site.url, site.token, self._ledger)
        define(self._traffic, options["tags"])

    def all(self) -> dict[str, Any]:
        began = time.monotonic()
        site = self._site
        steps: list[tuple[str, Callable[[], object]]] = [
            ("the version before", lambda: None),
            ("it, on the migrated database", lambda: site.command(ROOT, "migrate")),
            ("a server of each, its workers", lambda: site.put("server-1", ROOT)),
            ("a server and a worker of each", lambda: site.put("worker-1", ROOT)),
            ("this version's servers, a worker of each", lambda: site.put("server-2", ROOT)),
            ("this version", lambda: site.put("worker-2", ROOT)),
            ("a server of before again", lambda: site.put("server-2", site.previous)),
            ("and a worker of before", lambda: site.put("worker-2", site.previous)),
        ]
        self._traffic.start()
        try:
            rows = [self._one(says, change) for says, change in steps]
        finally:
            self._traffic.stop()
        return {
            "previous": self._options["previous"],
            "nodes": self._options["nodes"],
            "steps": rows,
            "wrong": self._traffic.wrong,
            "requests": dict(self._traffic.counted),
            "seconds": round(time.monotonic() - began, 1),
            "machine": machine(),
        }

    def _one(self, says: str, change: Callable[[], object]) -> dict[str, Any]:
        before = self._traffic.counted.copy()
        client = self._traffic.client()
        client.until(lambda: client.api.post("rebuilds/", {"all": True}))
        client.api.close()
        change()
        self._site.rest(self._options["seconds"])
        checks.recovery(self._site, self._traffic)
        self._traffic.pause(self._site.look)
        try:
            checks.until_settled(self._site)
            lost, wrong = self._ledger.lost(), checks.wrong_answers(self._ledger)
        finally:
            self._traffic.resume()
        errors, theirs = self._site.errors(THIS), self._site.errors(PREVIOUS)
        counted = self._traffic.counted - before
        self._console.print(f"{says}: {len(lost)} lost, {wrong} wrong, {len(errors)} errors")
        return {
            "says": says,
            "lost": lost,
            "wrong_answers": wrong,
            "errors": len(errors),
            "shown": errors[:MAX_SHOWN],
            # What the version before says of this one is no longer to be changed.
            "errors_of_before": len(theirs),
            "shown_of_before": sorted(Counter(theirs).items(), key=lambda item: -item[1])[
                :MAX_SHOWN
            ],
            **{name: counted[name] for name in ("answered", "busy", "cut")},
        }
