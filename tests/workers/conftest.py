"""What tests of a whole worker share: with which evaluator it runs, and what it logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from tests.workers.running import EVALUATORS, VARIABLE


@pytest.fixture(params=EVALUATORS)
def evaluator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each in turn, unless the test names one."""
    monkeypatch.setenv(VARIABLE, request.param)
    return str(request.param)


@pytest.fixture
def log() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as lines:
        yield lines
