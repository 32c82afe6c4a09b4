"""What counts over all server processes counts each call once, and for a minute."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from django.core.cache import caches as made

from api import counters
from api.models import CacheEntry
from tagmill import caches, config
from tagmill.errors import CacheUnavailable, ConfigurationError
from tests.support.sql import database_url

CALLS = 100
# Both processes say that they are ready, and begin when they are told to.
COUNTER = f"""
import json, sys, time
import django
django.setup()
from django.db import connection
from api import counters
connection.ensure_connection()
print("ready", flush=True)
sys.stdin.readline()
print(json.dumps([counters.count("login", 60, time.time())[0] for _ in range({CALLS})]))
"""


@pytest.mark.django_db(transaction=True)
def test_a_counter_begins_anew_in_the_second_in_which_it_ended() -> None:
    assert counters.count("login", 60, time.time())[0] == 1
    CacheEntry.objects.update(expires=datetime.now(UTC).replace(microsecond=0))
    assert counters.count("login", 60, time.time())[0] == 1


def test_two_processes_at_once_count_each_call_once(transactional_db: None) -> None:
    environment = os.environ | {"DATABASE_URL": database_url()}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", COUNTER],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in both:
        assert process.stdout and process.stdout.readline() == "ready\n"
    for process in both:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    counted = [json.loads(process.communicate(timeout=60)[0]) for process in both]
    assert sorted(number for each in counted for number in each) == list(range(1, 2 * CALLS + 1))


def test_a_counter_ends_a_minute_after_its_first_call(db: None) -> None:
    now = time.time()
    assert counters.count("preview 7", 60, now) == (1, int(now) + 60)
    assert counters.count("preview 7", 60, now + 30) == (2, int(now) + 60)
    assert counters.count("preview 8", 60, now + 30)[0] == 1
    CacheEntry.objects.update(expires="2000-01-01T00:00Z")
    assert counters.count("preview 7", 60, now + 61) == (1, int(now + 61) + 60)


def test_a_call_leaves_the_end_of_the_entry_as_it_is(db: None) -> None:
    counters.count("preview 7", 60, time.time())
    (before,) = CacheEntry.objects.values_list("expires", flat=True)
    counters.count("preview 7", 60, time.time())
    assert list(CacheEntry.objects.values_list("expires", flat=True)) == [before]


def test_entries_that_have_ended_go_when_there_are_many(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(made["default"], "_max_entries", 3)
    for number in range(5):
        counters.count(f"login 192.0.2.{number}", 60, time.time())
        CacheEntry.objects.update(expires="2000-01-01T00:00Z")
    counters.count("login 192.0.2.9", 60, time.time())
    assert CacheEntry.objects.count() <= 3


def test_a_cache_that_does_not_answer_lets_nobody_guess(
    db: None, configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(cache_url="redis://cache:6379/0")

    def unreachable(key: str) -> int:
        raise ConnectionError("no route to the cache")

    monkeypatch.setattr(made["default"], "incr", unreachable)
    with pytest.raises(CacheUnavailable, match="TAGMILL_CACHE_URL"):
        counters.count("login", 60, time.time())


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("amqp://user:hush@cache", "must be redis://"),
        ("redis://", "must be redis://"),
        ("redis://user:hush@cache:6379/0", "pip install redis"),
        ("memcached://cache", "pip install pymemcache"),
    ],
)
def test_an_address_of_a_cache_that_cannot_be_used_stops_the_start(
    configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch, url: str, says: str
) -> None:
    monkeypatch.setattr(caches, "find_spec", lambda name: None)
    configure(cache_url=url)
    with pytest.raises(ConfigurationError, match=says) as caught:
        caches.django_settings(config.load())
    assert "hush" not in str(caught.value)


def test_the_address_of_a_cache_chooses_the_backend(
    configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caches, "find_spec", lambda name: name)
    configure(cache_url="redis://cache:6379/0")
    assert caches.django_settings(config.load())["default"]["LOCATION"] == "redis://cache:6379/0"
    configure(cache_url="memcached://cache")
    assert caches.django_settings(config.load())["default"]["LOCATION"] == "cache:11211"
