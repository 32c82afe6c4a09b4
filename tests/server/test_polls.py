"""Waiting workers hold no thread, and each piece of work reaches one of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from loadtest.benches.polls import measure
from loadtest.rig.stack import Stack

MAX_THREADS = 40


@pytest.mark.proof
def test_a_thousand_parked_polls_hold_no_thread_and_every_lease_arrives(
    stack: Stack, configure: Callable[..., None]
) -> None:
    configure(settle_seconds=5)
    result = measure(stack.url, stack.pids()["server"], polls=1000, leases=10, burst=20)
    assert result.threads <= MAX_THREADS
    assert (result.polls, result.leases, result.burst_leases) == (1000, 10, 20)
