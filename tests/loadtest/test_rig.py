from __future__ import annotations

import pytest

from loadtest.rig.rig import forget_workers
from tagmill.work import workers
from tagmill_wire.messages import VERSION, Register


@pytest.mark.django_db
def test_workers_of_a_stack_that_was_stopped_share_no_work_of_the_next_one() -> None:
    token = workers.issue_token("bench", "all")[0]
    for name in ("worker-1", "worker-2"):
        workers.register(token, Register(name, "lxml", str(VERSION)))
    assert workers.live([]) == 2
    forget_workers()
    workers.register(token, Register("worker-1", "lxml", str(VERSION)))
    assert workers.live([]) == 1
