"""Workers come, are stopped and are killed: partitions move by one worker's share, and tags stay
true."""

from __future__ import annotations

import signal

import pytest

from tagmill.flows import maintenance
from tagmill.work.models import Placement, Worker
from tests.support.sql import execute
from tests.system.conftest import System


@pytest.fixture
def quiet(settings_of_processes: pytest.MonkeyPatch) -> None:
    """Ask for it before `system`: nobody is silent because the machine is busy."""
    settings_of_processes.setenv("TAGMILL_LEASE_SECONDS", "600")


def counting() -> dict[int, str]:
    """The name of the worker that is preferred for each partition."""
    names = dict(Worker.objects.values_list("id", "name"))
    (stored,) = Placement.objects.all()
    return {
        partition: names[worker]
        for partition, worker in zip(stored.partitions, stored.counting, strict=True)
    }


def test_workers_join_are_stopped_and_are_killed(quiet: None, system: System) -> None:
    system.stack.start_workers(3)
    system.wait(lambda: Worker.objects.filter(is_ready=True).count() == 3)
    before = counting()
    loads = [list(before.values()).count(f"worker-{n}") for n in (1, 2, 3)]
    assert min(loads) > 0
    assert max(loads) - min(loads) <= 1

    stopped = system.process("worker-1")
    stopped.send_signal(signal.SIGTERM)
    stopped.wait()
    after = counting()
    assert set(after.values()) == {"worker-2", "worker-3"}
    assert all(after[key] == name for key, name in before.items() if name != "worker-1")

    killed = system.process("worker-2")
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    killed_id = Worker.objects.get(name="worker-2").id
    execute("UPDATE worker SET last_heartbeat = now() - interval '1 hour' WHERE name = 'worker-2'")
    maintenance.place()
    assert set(counting().values()) == {"worker-3"}

    system.tag("any", "//node")

    def is_ready() -> bool:
        # What the server gave the worker before it saw that the connection had ended.
        execute("UPDATE lease SET deadline = now() WHERE worker_id = %s", [killed_id])
        maintenance.reap()
        return bool(system.state("any") == "ready")

    system.wait(is_ready)
    system.assert_true("any")
