"""Clients that upload, edit and read throughout, and repeat what was not answered."""

from __future__ import annotations

import http.client
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from loadtest.bench import BenchError
from loadtest.chaos.ledger import Ledger
from loadtest.rig.changes import MARKER
from loadtest.rig.definitions import CLASSES, definitions
from loadtest.rig.http import Api, ApiProblem

# A client gives an answer up after this, and asks again. The site's servers end every statement
# before: what is given up never happens later, over what was stored since.
ANSWER_SECONDS = 30.0
# The longest that clients take to come to rest: an answer that does not come, and its repetition.
REST_SECONDS = 90.0
# Between two requests of one client: the machine has more to do than to answer them.
PAUSE_SECONDS = 0.03
AGAIN_SECONDS = 0.05
MAX_WRONG = 20
EXTRA_NODES = 20
UPLOADERS = 2
PROBE_NODE = PROBE_TAG = "chaos-probe"
EDITED = ("edited-1", "edited-2")
READS = (
    "tags/",
    "nodes/?limit=50",
    "tags/edited-1/nodes?limit=50",
    "clusters/",
    "partitions/?limit=50",
    "rebuilds/?limit=5",
)
# What a server says that has no database, or is about to stop.
BUSY = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE})


class Client:
    """One connection, and what came of its requests."""

    def __init__(self, api: Api, traffic: Traffic) -> None:
        self.api = api
        self._ledger = traffic.ledger
        self._traffic = traffic

    def get(self, path: str) -> None:
        self.until(lambda: self.api.get(path))

    def put(self, system_id: str, xml: str) -> None:
        self.until(lambda: self.api.put_xml(f"nodes/{system_id}/document", xml.encode()))
        self._ledger.stored(system_id, xml)

    def create(self, system_id: str, xml: str) -> None:
        # The first answer may have been lost.
        self.until(lambda: self.api.post("nodes/", {"system_id": system_id}), HTTPStatus.CONFLICT)
        self.put(system_id, xml)

    def delete(self, system_id: str) -> None:
        self.until(lambda: self.api.delete(f"nodes/{system_id}"), HTTPStatus.NOT_FOUND)
        self._ledger.deleted(system_id)

    def define(self, tag: str, text: str) -> None:
        self.until(lambda: self.api.call("PATCH", f"tags/{tag}", {"definition": text}))
        self._ledger.defined(tag, text)

    def until(self, ask: Callable[[], Any], *also: HTTPStatus) -> Any:
        """Ask until it is answered; `also` are answers as good as a success."""
        while not self._traffic.is_over:
            try:
                found = ask()
            except ApiProblem as problem:
                if problem.status in also:
                    return None
                self._traffic.note(problem)
            except (OSError, http.client.HTTPException, ValueError) as error:
                # Half an answer is none.
                self.api.close()
                self._traffic.note(error)
            else:
                self._traffic.count("answered")
                return found
            time.sleep(AGAIN_SECONDS)
        raise Over


class Over(Exception):
    """The run ends while a request is being repeated."""


class Traffic:
    """`wrong`: answers that no fault excuses, a few of them in words."""

    def __init__(self, base: str, token: str, ledger: Ledger) -> None:
        self.wrong: list[str] = []
        self.counted: Counter[str] = Counter()
        self.is_over = False
        self.ledger = ledger
        self._base, self._token = base, token
        self._nodes = sorted(ledger.documents)
        self.sample = ledger.documents[self._nodes[0]]
        self._lock = threading.Lock()
        self._running = threading.Event()
        self._works = [
            *[(f"uploader {number}", self._uploads(number)) for number in range(UPLOADERS)],
            ("editor", self._edits),
            ("creator", self._creates),
            *[(f"reader {number}", self._reads(number)) for number in range(2)],
        ]
        self._resting = {name: threading.Event() for name, _ in self._works}
        self._threads = [
            threading.Thread(target=self._run, args=item, daemon=True, name=item[0])
            for item in self._works
        ]

    def client(self) -> Client:
        return Client(Api(self._base, self._token, ANSWER_SECONDS), self)

    def half_open(self) -> socket.socket:
        """A connection to a server, for who says nothing more."""
        url = urlsplit(self._base)
        return socket.create_connection((url.hostname, url.port), ANSWER_SECONDS)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()
        self.resume()

    def resume(self) -> None:
        for resting in self._resting.values():
            resting.clear()
        self._running.set()

    def pause(self, look: Callable[[], None]) -> None:
        """Until every client has the answer to what it was at. Raises BenchError."""
        self._running.clear()
        deadline = time.monotonic() + REST_SECONDS
        while busy := [name for name, resting in self._resting.items() if not resting.is_set()]:
            look()
            if time.monotonic() > deadline:
                raise BenchError(f"after {REST_SECONDS:g} s without an answer: {', '.join(busy)}")
            time.sleep(AGAIN_SECONDS)

    def stop(self) -> None:
        self.is_over = True
        self._running.set()
        for thread in self._threads:
            thread.join(REST_SECONDS)

    def note(self, error: Exception) -> None:
        """What a request met other than its answer."""
        if isinstance(error, ApiProblem) and error.status not in BUSY:
            self.count("wrong")
            with self._lock:
                if len(self.wrong) < MAX_WRONG:
                    self.wrong.append(str(error))
        else:
            self.count("busy" if isinstance(error, ApiProblem) else "cut")

    def count(self, what: str) -> None:
        with self._lock:
            self.counted[what] += 1

    def _run(self, name: str, work: Callable[[Client, random.Random], None]) -> None:
        client, rng = self.client(), random.Random(name)  # noqa: S311 - the same load each time
        try:
            while not self.is_over:
                if not self._running.is_set():
                    self._resting[name].set()
                    self._running.wait()
                    continue
                work(client, rng)
                time.sleep(PAUSE_SECONDS)
        except Over:
            pass
        finally:
            self._resting[name].set()
            client.api.close()

    def _uploads(self, number: int) -> Callable[[Client, random.Random], None]:
        mine = self._nodes[number::UPLOADERS]

        def work(client: Client, rng: random.Random) -> None:
            system_id = rng.choice(mine)
            client.put(system_id, altered(self.ledger.documents[system_id], rng))

        return work

    def _edits(self, client: Client, rng: random.Random) -> None:
        client.define(rng.choice(EDITED), definition(rng))
        time.sleep(0.2)

    def _creates(self, client: Client, rng: random.Random) -> None:
        system_id = f"extra-{rng.randrange(EXTRA_NODES)}"
        if system_id in self.ledger.documents:
            client.delete(system_id)
        else:
            client.create(system_id, altered(self.sample, rng))

    def _reads(self, _number: int) -> Callable[[Client, random.Random], None]:
        def work(client: Client, rng: random.Random) -> None:
            client.get(rng.choice(READS))

        return work


def define(traffic: Traffic, tags: int) -> None:
    """Make the tags that nobody edits, those that the editor and the probe have, and its node."""
    client = traffic.client()
    edited = dict.fromkeys([*EDITED, PROBE_TAG], "//node[@id='bench-marker']")
    for name, text in (definitions(tags) | edited).items():
        client.api.post("tags/", {"name": name, "definition": text})
        traffic.ledger.defined(name, text)
    client.create(PROBE_NODE, '<node id="p"/>')
    client.api.close()


def altered(xml: str, rng: random.Random) -> str:
    """Another document of the same node; in half of them, the marker."""
    end = xml.find('<node id="bench-change"')
    head = xml[:end] if end >= 0 else xml[: xml.rindex("</")]
    marker = MARKER if rng.random() < 0.5 else ""  # noqa: PLR2004 - half
    kind = rng.choice(CLASSES)
    changed = f'<node id="bench-change" class="{kind}"><serial>{rng.random()}</serial></node>'
    return f"{head}{changed}{marker}{xml[xml.rindex('</') :]}"


def definition(rng: random.Random) -> str:
    """One of some hundred, about what uploads change."""
    kind, digit = rng.choice(CLASSES), rng.randrange(10)
    return f"//node[@id='bench-change' and @class='{kind}' and contains(serial, '{digit}')]"
