"""Fixtures of the domain's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.db import connection

from tagmill import config


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Settings for one test, as the environment would give them."""

    def change(**settings: object) -> None:
        for name, value in settings.items():
            monkeypatch.setenv(f"TAGMILL_{name.upper()}", str(value))
        config.load.cache_clear()

    yield change
    monkeypatch.undo()
    config.load.cache_clear()


@pytest.fixture
def no_jobs(transactional_db: None) -> Iterator[None]:
    """An empty queue: the flush after a test knows Django's own tables only."""
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE procrastinate_jobs, procrastinate_workers CASCADE")
    yield
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE procrastinate_jobs, procrastinate_workers CASCADE")
