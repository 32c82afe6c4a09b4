"""The whole worker, in this process, with its real child, against the mock API."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from lxml import etree
from twisted.internet.defer import Deferred

from tagmill_wire import bitmap
from tagmill_worker import pages, settings
from tagmill_worker.backoff import Backoff
from tagmill_worker.client import Client
from tagmill_worker.errors import Unauthorized
from tagmill_worker.metrics import Metrics
from tagmill_worker.runtime import Worker
from tests.workers import mockapi
from tests.workers.mockapi import MockApi, Partition
from tests.workers.running import VARIABLE, only_kernel, polled, run

# The suite runs over every evaluator that is here.
only_lxml = pytest.mark.parametrize("evaluator", ["lxml"], indirect=True)


pytestmark = pytest.mark.usefixtures("evaluator")


class Rig:
    """A mock API and a worker that talks to it."""

    def __init__(
        self, *options: str, token: str = mockapi.TOKEN, most_page_bytes: int = pages.MAX_BYTES
    ) -> None:
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.api = MockApi(reactor)
        self.url = self.api.listen()
        arguments = ["--server", self.url, "--token", token, "--name", "w"]
        environment = {VARIABLE: os.environ.get(VARIABLE, "lxml")}
        self.settings = settings.load([*arguments, *options], environment)
        self.metrics = Metrics()
        self.client = Client(reactor, self.url, token, seconds=2, most_page_bytes=most_page_bytes)
        self.worker = Worker(reactor, self.settings, self.client, self.metrics)
        self.done: Deferred[None] | None = None

    def partition(self, key: int, documents: list[str]) -> Partition:
        made = self.api.partitions[key] = Partition(key)
        for slot, xml in enumerate(documents):
            made.put(slot, xml)
        return made

    def start(self) -> None:
        self.done = Deferred.fromCoroutine(self.worker.run())

    async def stop(self) -> None:
        self.worker.stop()
        assert self.done is not None
        await self.done
        await self.close()

    async def close(self) -> None:
        for request in list(self.api.parked):
            request.channel.transport.abortConnection()
        await self.api.port.stopListening()

    async def results(self, count: int) -> None:
        await self.api.until(lambda: len(self.api.results) >= count)

    def value(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


def members(rig: Rig, expression: int, partition: int) -> list[int]:
    return list(bitmap.slots(rig.api.matches[expression, partition][1]))


def test_it_leases_fetches_evaluates_and_completes(evaluator: str) -> None:
    async def story() -> None:
        rig = Rig()
        rig.partition(1, ["<list><node/></list>", "<node/>", "<list/>"])
        rig.api.expressions = {7: "//node", 8: "true()", 9: "1 = 2"}
        rig.api.work.append({1: {7: None, 8: None, 9: None}})
        rig.start()
        await rig.results(1)
        await rig.stop()
        assert members(rig, 7, 1) == [0, 1]
        assert members(rig, 8, 1) == [0, 1, 2]
        assert members(rig, 9, 1) == []
        assert rig.api.results[0].rev == 3
        assert rig.api.results[0].documents == 3
        assert rig.api.registered[0].evaluator == evaluator

    run(story())


def test_it_reads_every_page_and_takes_the_rev_of_the_first() -> None:
    async def story() -> None:
        rig = Rig("--batch-nodes", "3")
        partition = rig.partition(1, ["<node/>" if n % 2 else "<list/>" for n in range(10)])
        rig.api.expressions = {7: "/node"}

        def change_meanwhile(request: Any) -> Any:
            partition.put(0, "<node/>")
            return rig.api.behave(request)

        rig.api.faults["batch"].extend([None, change_meanwhile])
        rig.api.work.append({1: {7: None}})
        rig.start()
        await rig.results(1)
        await rig.stop()
        assert members(rig, 7, 1) == [1, 3, 5, 7, 9]
        assert rig.api.results[0].rev == 10
        assert [page.get("after") for page in rig.api.pages] == [None, 2, 5, 8]

    run(story())


def test_a_delta_evaluates_only_what_changed_and_agrees_with_a_full_evaluation() -> None:
    """Random changes over many revisions; every answer is compared with lxml's on all documents."""

    async def story() -> None:
        rig = Rig("--batch-nodes", "7")
        draw = random.Random(5)
        documents = ["<node/>", "<list/>", "<list><node/><node/></list>", "<node><a/></node>"]
        partition = rig.partition(1, [draw.choice(documents) for _ in range(20)])
        texts = {1: "//node", 2: "count(//node) > 1", 3: "true()", 4: "//a"}
        rig.api.expressions = texts
        rig.start()
        for step in range(12):
            bases: dict[int, int | None] = {}
            for key in texts:
                stored = rig.api.matches.get((key, 1))
                # A forced one now and then: deltas and full results in one lease.
                is_forced = draw.random() < 0.2
                if is_forced and stored:
                    rig.api.matches[key, 1] = (-1, stored[1])
                bases[key] = None if is_forced or stored is None else stored[0]
            rig.api.enqueue({1: bases})
            await rig.results(step + 1)
            for key, text in texts.items():
                expected = [
                    slot
                    for slot, (_, probes) in sorted(partition.nodes.items())
                    if probes
                    and etree.fromstring(probes["lshw"]).getroottree().xpath(f"boolean({text})")
                ]
                assert members(rig, key, 1) == expected, (step, key)
            for _ in range(draw.randrange(1, 10)):
                slot = draw.randrange(25)
                partition.put(slot, draw.choice([*documents, None]))
        await rig.stop()
        fulls = [page for page in rig.api.pages if "since" not in page]
        assert len(fulls) == 3
        assert sum(result.documents for result in rig.api.results) < 12 * 20

    run(story())


@only_lxml
def test_a_runaway_expression_is_stopped_and_the_others_proceed() -> None:
    async def story() -> None:
        rig = Rig()
        rig.api.registration["evaluation_seconds"] = 0.3
        rig.partition(1, ["<node/>", "<node>" + "<a/>" * 3000 + "</node>", "<list/>"])
        rig.api.expressions = {7: "count(//*[count(//*[count(//*) > 1]) > 1]) > 1", 8: "/node"}
        rig.api.work.append({1: {7: None, 8: None}})
        rig.start()
        await rig.results(1)
        await rig.stop()
        (result,) = rig.api.results
        assert [failure.expression for failure in result.failures] == [7]
        assert "stopped after" in result.failures[0].reason
        assert "slot 1" in result.failures[0].reason
        assert members(rig, 8, 1) == [0, 1]
        assert rig.value("tagmill_worker_child_restarts_total", reason="stopped") == 1

    run(story())


def test_a_killed_child_is_replaced_and_loses_nothing() -> None:
    async def story() -> None:
        rig = Rig()
        rig.partition(1, ["<node/>", "<list/>"])
        rig.api.expressions = {7: "/node"}
        rig.start()
        await polled(rig.reactor, lambda: rig.worker.evaluator.pid is not None)
        first = rig.worker.evaluator.pid
        os.kill(first or 0, signal.SIGKILL)
        rig.api.work.append({1: {7: None}})
        await rig.results(1)
        assert rig.worker.evaluator.pid != first
        assert members(rig, 7, 1) == [0]
        await rig.stop()

    run(story())


FAULTS = {
    "a dropped connection": mockapi.drop,
    "a truncated answer": mockapi.truncate,
    "garbage": mockapi.garbage,
    "an answer that stops half-way": mockapi.never,
    "503": mockapi.problem(503, "database_unavailable"),
    "429": mockapi.problem(429, "slow_down", Retry_After="0"),
}


def test_it_names_the_leases_that_it_has_when_it_asks_for_more() -> None:
    """The server ends the others: the answer that granted them was lost."""

    async def story() -> None:
        rig = Rig()
        for key in (1, 2):
            rig.partition(key, ["<node/>"])
        rig.api.expressions = {7: "/node"}
        # The result of the first is not taken while the second is asked for.
        rig.api.faults["complete"].append(mockapi.never)
        rig.api.work += [{1: {7: None}}, {2: {7: None}}]
        rig.start()
        await rig.api.until(lambda: len(rig.api.asked) >= 2)
        first, second = rig.api.asked[:2]
        assert first.leases == []
        assert second.leases is not None and len(second.leases) == 1
        await rig.results(2)
        await rig.stop()

    run(story())


@pytest.mark.parametrize("retry_after", [None, 2.0])
def test_a_server_that_comes_back_is_noticed_within_five_seconds(
    retry_after: float | None,
) -> None:
    longest = Backoff(uniform=lambda _, most: most)
    assert max(longest.next(retry_after) for _ in range(100)) <= 5.0


def test_it_stops_while_it_connects() -> None:
    async def story() -> None:
        rig = Rig()
        rig.start()
        # No answer of the network has been waited for yet.
        await rig.stop()
        assert rig.api.registered == []

    run(story())


@pytest.mark.parametrize("fault", FAULTS)
def test_it_stops_whatever_the_call_that_is_interrupted_ends_with(fault: str) -> None:
    async def story() -> None:
        rig = Rig()
        rig.api.faults["register"].append(FAULTS[fault])
        rig.start()
        await rig.api.until(lambda: not rig.api.faults["register"])
        await rig.stop()

    run(story())


@pytest.mark.parametrize("call", ["register", "lease", "batch", "complete"])
@pytest.mark.parametrize("fault", [name for name in FAULTS if "half-way" not in name])
def test_it_tries_again_after(fault: str, call: str) -> None:
    async def story() -> None:
        rig = Rig()
        rig.partition(1, ["<node/>"])
        rig.api.expressions = {7: "/node"}
        rig.api.work.append({1: {7: None}})
        rig.api.faults[call].append(FAULTS[fault])
        rig.start()
        await rig.results(1)
        await rig.stop()
        assert members(rig, 7, 1) == [0]

    run(story())


def test_it_registers_again_when_the_server_has_forgotten_it() -> None:
    async def story() -> None:
        rig = Rig()
        rig.partition(1, ["<node/>"])
        rig.api.expressions = {7: "/node"}
        rig.api.work.append({1: {7: None}})
        rig.api.faults["complete"].append(mockapi.problem(410, "worker_gone"))
        rig.start()
        await rig.api.until(lambda: len(rig.api.registered) == 2)
        rig.api.enqueue({1: {7: None}})
        await rig.results(1)
        await rig.stop()
        # What it held before stays good, and nothing has changed since: it is fetched once.
        assert ["since" in page for page in rig.api.pages] == [False]

    run(story())


def test_it_ends_when_the_token_is_refused() -> None:
    async def story() -> None:
        rig = Rig(token="tmw_wrong_one")
        rig.start()
        with pytest.raises(Unauthorized):
            assert rig.done is not None
            await rig.done
        await rig.close()

    run(story())


def test_a_partition_that_has_gone_is_given_back() -> None:
    async def story() -> None:
        rig = Rig()
        rig.partition(2, ["<node/>"])
        rig.api.expressions = {7: "/node"}
        rig.api.work.append({1: {7: None}})
        rig.api.work.append({2: {7: None}})
        rig.start()
        await rig.results(1)
        await rig.stop()
        assert rig.api.given_up[0].leases == ["lease-1"]
        assert members(rig, 7, 2) == [0]

    run(story())


@only_lxml
def test_an_expression_on_which_the_child_dies_twice_has_failed() -> None:
    """The child is killed each time it is at the expression, as the kernel's OOM killer would."""

    async def story() -> None:
        rig = Rig()
        rig.partition(1, ["<node>" + "<a/>" * 3000 + "</node>"])
        rig.api.expressions = {7: "count(//*[count(//*[count(//*) > 1]) > 1]) > 1", 8: "/node"}
        rig.api.work.append({1: {7: None, 8: None}})
        rig.start()
        for _ in range(2):
            await polled(rig.reactor, lambda: _noted(rig) == 7)
            victim = rig.worker.evaluator.pid
            os.kill(victim or 0, signal.SIGKILL)
            await polled(rig.reactor, lambda: rig.worker.evaluator.pid != victim)  # noqa: B023
        await rig.results(1)
        await rig.stop()
        (failure,) = rig.api.results[0].failures
        assert failure.expression == 7 and "died" in failure.reason
        assert members(rig, 8, 1) == [0]

    run(story())


# Read by the child's interpreter when it starts: the kernel fails on one expression of its own.
FAULTY_KERNEL = """
import os, time
import tagmill_kernel

class Image:
    def __init__(self):
        self._image = Healthy()
    def __getattr__(self, name):
        return getattr(self._image, name)
    def __len__(self):
        return len(self._image)
    def evaluate(self, expressions, *rest):
        if any(expression.text == "//faulty" for expression in expressions):
            FAULT
        return self._image.evaluate(expressions, *rest)

Healthy, tagmill_kernel.PartitionImage = tagmill_kernel.PartitionImage, Image
"""


@only_kernel
@pytest.mark.parametrize(
    ("fault", "reason", "restarts"),
    [("time.sleep(60)", "stopped after", 2), ("os._exit(9)", "died on it 2 times", 3)],
)
def test_a_fault_of_the_kernel_is_noticed_and_found_out(
    fault: str, reason: str, restarts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(FAULTY_KERNEL.replace("FAULT", fault))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    async def story() -> None:
        rig = Rig()
        rig.api.registration["evaluation_seconds"] = 0.5
        rig.partition(1, ["<node/>", "<list/>"])
        rig.api.expressions = {7: "/list", 8: "//faulty", 9: "/node"}
        rig.api.work.append({1: {7: None, 8: None, 9: None}})
        rig.start()
        await rig.results(1)
        await rig.stop()
        (result,) = rig.api.results
        (failure,) = result.failures
        assert failure.expression == 8 and reason in failure.reason
        assert (members(rig, 7, 1), members(rig, 9, 1)) == ([1], [0])
        word, _, _ = reason.partition(" ")
        assert rig.value("tagmill_worker_child_restarts_total", reason=word) == restarts

    run(story())


def _noted(rig: Rig) -> int:
    noted = rig.worker.evaluator.noted
    return -1 if noted is None else noted.expression


def test_a_document_that_cannot_be_parsed_matches_nothing() -> None:
    async def story() -> None:
        rig = Rig()
        rig.partition(1, ["<node/>", "<node>"])
        rig.api.expressions = {7: "true()"}
        rig.api.work.append({1: {7: None}})
        rig.start()
        await rig.results(1)
        await rig.stop()
        assert members(rig, 7, 1) == [0]
        assert rig.value("tagmill_worker_unreadable_documents_total") == 1

    run(story())


# Read by the child's interpreter when it starts: whoever reads a document with "faulty" in it comes
# to harm, for as long as the file FLAG is there.
FAULTY_READER = """
import os, time
import tagmill_expressions.documents

def guarded(read, text_of):
    def reader(*arguments):
        if "faulty" in text_of(*arguments) and os.path.exists("FLAG"):
            FAULT
        return read(*arguments)
    return reader

documents = tagmill_expressions.documents
documents.compose = guarded(documents.compose, lambda probes: probes["lshw"])
try:
    import tagmill_kernel
except ImportError:
    pass
else:
    class Image:
        def __init__(self):
            self._image = Healthy()
            self.put = guarded(self._image.put, lambda slot, probes: probes["lshw"])
        def __getattr__(self, name):
            return getattr(self._image, name)
        def __len__(self):
            return len(self._image)

    Healthy, tagmill_kernel.PartitionImage = tagmill_kernel.PartitionImage, Image
"""


def faulty_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> Path:
    """The file that must be removed for the fault to go."""
    flag = tmp_path / "flag"
    flag.touch()
    code = FAULTY_READER.replace("FLAG", str(flag)).replace("FAULT", fault)
    (tmp_path / "sitecustomize.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return flag


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("time.sleep(60)", "stopped after"),
        ("os._exit(9)", "died on it 2 times"),
        ("raise MemoryError", "out of memory: allow more with --evaluation-bytes"),
    ],
)
def test_a_document_that_the_child_does_not_get_through_is_never_said_to_match_nothing(
    fault: str,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    log: list[dict[str, Any]],
) -> None:
    flag = faulty_reader(tmp_path, monkeypatch, fault)
    monkeypatch.setattr("tagmill_worker.evaluators.watchdog.READ_SECONDS", 0.3)

    async def story() -> None:
        rig = Rig()
        rig.api.registration["evaluation_seconds"] = 0.3
        rig.partition(1, ["<node/>", "<node>faulty</node>"])
        rig.partition(2, ["<node/>"])
        rig.api.expressions = {7: "/node"}
        rig.api.work.append({1: {7: None}, 2: {7: None}})
        rig.start()
        await rig.api.until(lambda: len(rig.api.given_up) == 1)
        await rig.results(1)
        rig.api.enqueue({1: {7: None}})
        await rig.api.until(lambda: len(rig.api.given_up) == 2)
        # Nobody has said anything of partition 1, and each time it is left alone for longer.
        assert {result.partition for result in rig.api.results} == {2}
        assert [message.delay for message in rig.api.given_up] == [5, 10]
        assert "slot 1 of partition 1 could not be read" in rig.api.given_up[1].reason
        assert reason in rig.api.given_up[1].reason
        lines = [line for line in log if line.get("action") == "given_up"]
        assert [(line["partition"], line["delay"]) for line in lines] == [(1, 5), (1, 10)]
        assert rig.value("tagmill_worker_unfinished_documents_total") == 2
        # It was not the document: the next time it is read.
        flag.unlink()
        rig.api.enqueue({1: {7: None}})
        await rig.results(2)
        await rig.stop()
        assert members(rig, 7, 1) == [0, 1]

    run(story())


@only_lxml
def test_a_child_that_needs_too_much_memory_ends_and_nothing_is_published() -> None:
    async def story() -> None:
        rig = Rig("--evaluation-bytes", "256MiB", "--image-bytes", "0")
        # Some 400 MB as a tree.
        rig.partition(1, ["<node>" + "<a/>" * 3_000_000 + "</node>"])
        rig.api.expressions = {7: "/node"}
        rig.api.work.append({1: {7: None}})
        rig.start()
        await rig.api.until(lambda: bool(rig.api.given_up))
        await rig.stop()
        assert "out of memory" in rig.api.given_up[0].reason
        assert rig.api.results == []

    run(story())


@only_kernel
def test_a_budget_that_was_too_small_grows_with_the_seconds_of_a_later_lease() -> None:
    async def story() -> None:
        rig = Rig()
        rig.partition(1, ["<node>" + "<a/>" * 1500 + "</node>"])
        # Some million steps: each looks at all that follow it, one by one.
        rig.api.expressions = {7: "count(//a/following::a[position() mod 2 = 1]) > 1"}
        rig.api.registration["evaluation_seconds"] = 0.001
        rig.api.work.append({1: {7: None}})
        rig.start()
        await rig.results(1)
        (failure,) = rig.api.results[0].failures
        assert "stopped after" in failure.reason and "0.001 s allow" in failure.reason
        rig.api.evaluation_seconds = 20.0
        rig.api.enqueue({1: {7: None}})
        await rig.results(2)
        await rig.stop()
        assert rig.api.results[1].failures == []
        assert members(rig, 7, 1) == [0]

    run(story())


def test_a_page_that_is_too_large_is_fetched_node_by_node() -> None:
    async def story() -> None:
        rig = Rig(most_page_bytes=1000)
        rig.partition(1, ["<node>" + "x" * 400 + "</node>"] * 3)
        rig.api.expressions = {7: "/node"}
        rig.api.work.append({1: {7: None}})
        rig.start()
        await rig.results(1)
        await rig.stop()
        assert members(rig, 7, 1) == [0, 1, 2]

    run(story())


def test_a_node_too_large_for_any_page_is_named_and_the_others_proceed(
    log: list[dict[str, Any]],
) -> None:
    async def story() -> None:
        rig = Rig(most_page_bytes=1000)
        rig.partition(1, ["<node/>", "<node>" + "x" * 2000 + "</node>"])
        rig.partition(2, ["<node/>"])
        rig.api.expressions = {7: "/node"}
        rig.api.work.append({1: {7: None}, 2: {7: None}})
        rig.start()
        await rig.results(1)
        await rig.stop()
        assert members(rig, 7, 2) == [0]
        assert [message.leases for message in rig.api.given_up] == [["lease-1"]]
        # Not tried again and again: it is as large the next time.
        assert [page["max_nodes"] for page in rig.api.pages] == [256, 1, 256, 1, 256]
        (line,) = (line for line in log if line.get("action") == "given_up")
        assert line["partition"] == 1
        assert "the first node after slot 0 has more documents" in line["error"]
        assert "1000 is the limit" in line["error"]
        assert "TAGMILL_DOCUMENT_BYTES" in line["error"]

    run(story())


def test_a_lost_lease_is_abandoned() -> None:
    async def story() -> None:
        rig = Rig()
        rig.api.registration["heartbeat_seconds"] = 1
        rig.partition(1, ["<node/>"])
        rig.partition(2, ["<node/>"])
        rig.api.expressions = {7: "/node"}
        rig.api.faults["batch"].append(mockapi.never)
        rig.api.lost = ["lease-1"]
        rig.api.work.extend([{1: {7: None}}, {2: {7: None}}])
        rig.start()
        await rig.results(1)
        await rig.stop()
        assert [result.partition for result in rig.api.results] == [2]
        assert rig.value("tagmill_worker_completions_total", outcome="lost") == 1

    run(story())


def test_a_broken_definition_fails_alone() -> None:
    async def story() -> None:
        rig = Rig()
        rig.partition(1, ["<node/>"])
        rig.api.expressions = {7: "//node[", 8: "/node"}
        rig.api.work.append({1: {7: None, 8: None}})
        rig.start()
        await rig.results(1)
        await rig.stop()
        assert [item.expression for item in rig.api.results[0].failures] == [7]
        assert members(rig, 8, 1) == [0]

    run(story())
