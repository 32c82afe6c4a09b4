"""What must be so after each fault."""

from __future__ import annotations

import http.client
import itertools
import time
from collections.abc import Callable
from typing import NamedTuple

import psutil
from django.db import Error as DatabaseError
from django.db import connection

from loadtest.bench import BenchError
from loadtest.chaos.ledger import Ledger
from loadtest.chaos.site import Probed, Site
from loadtest.chaos.traffic import PROBE_NODE, PROBE_TAG, Traffic
from loadtest.references.answers import ask_lxml, mismatches
from loadtest.rig.changes import MARKER
from loadtest.rig.http import Api, ApiProblem
from tagmill import sql

# One attempt of the probe; it is tried again until it goes through.
ATTEMPT_SECONDS = 2.0
PATIENCE_SECONDS = 90.0
LOOK_SECONDS = 0.02

_STALE = """
SELECT (SELECT count(*)
          FROM partition
         CROSS JOIN live_expression
          LEFT JOIN effective_match m
                 ON m.partition_id = partition.id AND m.expression_id = live_expression.id
         WHERE m.rev IS DISTINCT FROM partition.rev)
     + (SELECT count(*) FROM tag WHERE pending_expression_id IS NOT NULL)
     + (SELECT count(*) FROM lease)
"""

_numbers = itertools.count()


class Usage(NamedTuple):
    """What one process and its children take."""

    pid: int
    memory_bytes: int
    files: int


class Recovery(NamedTuple):
    """Seconds until an upload was stored, until a new definition was, and until it was evaluated
    everywhere and published, and readers saw what both say."""

    stored: float
    defined: float
    seconds: float


def recovery(site: Probed, traffic: Traffic) -> Recovery:
    """How long from now. Raises BenchError."""
    began = time.monotonic()
    number = next(_numbers)
    text = f"//node[@id='bench-marker' and not(serial = 'x{number}')]"
    xml = f'<node id="p{number}">{MARKER if number % 2 else ""}</node>'
    ledger = traffic.ledger
    attempts: list[Callable[[Api], bool]] = [
        lambda api: api.put_xml(f"nodes/{PROBE_NODE}/document", xml.encode()) is not None,
        lambda api: bool(api.call("PATCH", f"tags/{PROBE_TAG}", {"definition": text})),
        lambda api: _shows(api, text, is_there=bool(number % 2)),
    ]
    passed: list[float] = []
    for attempt in attempts:
        while not _tried(site, attempt):
            site.look()
            if time.monotonic() > began + PATIENCE_SECONDS:
                raise BenchError(f"no recovery in {PATIENCE_SECONDS:g} s")
            time.sleep(LOOK_SECONDS)
        passed.append(round(time.monotonic() - began, 3))
    ledger.stored(PROBE_NODE, xml)
    ledger.defined(PROBE_TAG, text)
    return Recovery(*passed)


def _tried(site: Probed, attempt: Callable[[Api], bool]) -> bool:
    api = Api(site.url, site.token, ATTEMPT_SECONDS)
    try:
        return bool(attempt(api))
    except (ApiProblem, OSError, http.client.HTTPException, ValueError):
        return False
    finally:
        api.close()


def _shows(api: Api, text: str, *, is_there: bool) -> bool:
    tag = api.get(f"tags/{PROBE_TAG}")
    if tag["definition"] != text or tag["pending_definition"] is not None:
        return False
    found = api.get(f"nodes/{PROBE_NODE}/tags")["tags"]
    return (PROBE_TAG in found) == is_there


def until_settled(site: Probed) -> None:
    """Until everything is evaluated and nobody works. Raises BenchError."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while left := _left():
        site.look()
        if time.monotonic() > deadline:
            raise BenchError(f"{left} evaluations are left after {PATIENCE_SECONDS:g} s")
        time.sleep(LOOK_SECONDS)


def _left() -> int:
    try:
        with connection.cursor() as cursor:
            cursor.execute(_STALE)
            (found,) = cursor.fetchone()
    except DatabaseError:
        connection.close()
        return 1
    return int(found)


def wrong_answers(ledger: Ledger) -> int:
    """(tag, node) pairs on which what is published and lxml differ, as of one moment: compaction
    gives nodes other ids meanwhile."""
    with sql.snapshot():
        return mismatches(ask_lxml(ledger.definitions))


def usage(site: Site) -> dict[str, Usage]:
    found = {}
    for name, process in site.processes().items():
        try:
            family = [process, *process.children(recursive=True)]
            found[name] = Usage(
                process.pid,
                sum(one.memory_info().rss for one in family),
                sum(one.num_fds() for one in family),
            )
        except psutil.NoSuchProcess:
            continue
    return found
