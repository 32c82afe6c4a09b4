"""What a worker says that it has done of late."""

from __future__ import annotations

import pytest

from tagmill_wire.messages import DONE_SINCE, UNSET, Done
from tagmill_worker.metrics import Metrics
from tagmill_worker.throughput import Throughput
from tests.workers.running import run, with_one
from tests.workers.test_worker import Rig


def test_it_is_what_was_done_in_the_minute_before() -> None:
    metrics = Metrics()
    throughput = Throughput(metrics.registry)
    assert throughput.look(100.0) is None
    said = []
    for beat in range(1, 8):
        metrics.documents.inc(10 * beat)
        metrics.completions.labels("applied").inc()
        metrics.completions.labels("lost").inc()
        said.append(throughput.look(100.0 + 15 * beat))
    assert said[0] == Done(15.0, 1, 10)
    assert said[3] == Done(60.0, 4, 100)
    # What was done before the minute is not counted any more.
    assert said[6] == Done(60.0, 4, 220)


@pytest.mark.usefixtures("evaluator")
@with_one
@pytest.mark.parametrize("protocol", [DONE_SINCE - 1, DONE_SINCE])
def test_heartbeats_say_it_to_a_server_that_understands_it(protocol: int) -> None:
    async def story() -> None:
        rig = Rig()
        rig.api.registration |= {"protocol": protocol, "heartbeat_seconds": 1}
        rig.partition(1, ["<node/>", "<node/>"])
        rig.api.expressions = {7: "//node"}
        rig.api.enqueue({1: {7: None}})
        rig.start()
        await rig.results(1)
        await rig.api.until(lambda: bool(rig.api.beats))
        done = rig.api.beats[0].done
        if protocol < DONE_SINCE:
            assert done is UNSET
        else:
            assert isinstance(done, Done) and (done.partitions, done.documents) == (1, 2)
        await rig.stop()

    run(story())
