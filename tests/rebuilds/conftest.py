"""Fixtures of the domain's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

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
