from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from loadtest.bench import BenchError
from loadtest.management.commands.capacity import MAX_ERROR, duration
from loadtest.planner import costs, sharing
from loadtest.planner.capacity import (
    MAX_NODES,
    TOLERANCE,
    Deployment,
    cpu_seconds,
    predict,
    whole,
)
from loadtest.planner.demand import DOCUMENT_BYTES, STATES, VARIETY, Demand, State
from loadtest.planner.plan import plan
from loadtest.planner.simulation import MAX_PARTITIONS, simulate
from loadtest.planner.tiers import with_tiers
from tagmill.fleet import clusters
from tagmill.fleet.models import Partition
from tagmill.tags.tags import create as create_tag
from tagmill.work import leases
from tests.loadtest.conftest import ROOT
from tests.support.fleet import HAS_GPU, put
from tests.support.workers import a_worker

# The time in which a cluster of 4,000 nodes was done, at 12 s for 10,000.
ORIGIN_SECONDS = 12 * 4_000 / 10_000
HUNDRED_THOUSAND = Demand(100_000, 1, ORIGIN_SECONDS, state="cold")


# -- the origin's napkin math ----------------------------------------------------------------------


def test_a_rebuild_of_the_origin_takes_12_s_of_which_the_database_has_2() -> None:
    origin = replace(costs.load(costs.ORIGIN), partition_slots=10_000)
    one = Demand(10_000, 1, 12, state="cold")
    used = cpu_seconds(origin, one, 1)
    assert sum(used.values()) == pytest.approx(12)
    assert used["database"] == pytest.approx(2)
    assert predict(origin, one, Deployment(1, 1, 1)).seconds == pytest.approx(12)


def test_one_api_server_of_the_origin_feeds_8_cluster_workers() -> None:
    made = plan(costs.load(costs.ORIGIN), HUNDRED_THOUSAND)
    assert made.workers_per_api_server == pytest.approx(8)


def test_the_origin_wants_25_clusters_3_api_servers_and_8_database_cores_for_100_000_nodes() -> (
    None
):
    made = plan(costs.load(costs.ORIGIN), HUNDRED_THOUSAND)
    assert made.partitions == 25
    assert made.deployment == Deployment(workers=25, api_servers=3, database_cores=8)


def test_the_origins_database_of_100_000_nodes_is_in_the_1_GB_range() -> None:
    made = plan(costs.load(costs.ORIGIN), HUNDRED_THOUSAND)
    assert made.database_bytes == pytest.approx(1.92e9)


def test_three_rebuilds_of_the_origin_at_once_take_less_than_15_s_on_4_cores() -> None:
    # "with a machine with 4 CPUs, I can run 3 rebuilds simultaneously, and they each take <15s"
    origin = replace(costs.load(costs.ORIGIN), partition_slots=10_000)
    three = Demand(30_000, 1, 15, state="cold")
    assert simulate(origin, three, Deployment(3, 1, 4, machine_cores=4)).seconds < 15


def test_the_origins_plan_is_slower_than_its_napkin_says_as_workers_queue() -> None:
    origin = costs.load(costs.ORIGIN)
    made = plan(origin, HUNDRED_THOUSAND)
    simulated = simulate(origin, HUNDRED_THOUSAND, made.deployment)
    assert simulated.seconds > ORIGIN_SECONDS * 1.1
    assert made.prediction.seconds == pytest.approx(simulated.seconds, rel=MAX_ERROR)
    assert not made.is_feasible


# -- the formula -----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["hot", "cold"])
@pytest.mark.parametrize(
    ("nodes", "tags", "target"),
    [
        (1_000, 1, 1),
        (10_000, 8, 2),
        (100_000, 200, 5),
        (1_000_000, 200, 30),
        (1_000_000, 1, 10),
        (10_000_000, 10, 120),
    ],
)
def test_a_plan_meets_its_target_in_the_formula_and_the_simulation(
    nodes: int, tags: int, target: float, state: State
) -> None:
    unit, demand = costs.load(), Demand(nodes, tags, target, state)
    made = plan(unit, demand)
    simulated = simulate(unit, demand, made.deployment)
    assert made.is_feasible
    assert made.prediction.seconds <= target * (1 + TOLERANCE)
    assert simulated.seconds == pytest.approx(made.prediction.seconds, rel=MAX_ERROR)


def test_more_nodes_or_tags_or_less_time_never_need_fewer_workers() -> None:
    unit = costs.load()

    def workers(nodes: int, tags: int, target: float) -> int:
        return plan(unit, Demand(nodes, tags, target)).deployment.workers

    base = workers(1_000_000, 200, 60)
    assert workers(2_000_000, 200, 60) >= base
    assert workers(1_000_000, 400, 60) >= base
    assert workers(1_000_000, 200, 30) >= base


def test_a_target_below_one_partitions_time_is_said_to_be_missed() -> None:
    unit = replace(costs.load(), fixed_seconds=5.0)
    assert not plan(unit, Demand(10_000, 8, 2)).is_feasible


def test_the_slowest_stage_is_the_bottleneck() -> None:
    unit = costs.load()
    demand = Demand(100_000, 500, 10)
    assert predict(unit, demand, Deployment(1, 100, 100)).bottleneck == "worker_cpu"
    assert predict(unit, demand, Deployment(1_000, 1, 100)).bottleneck == "api_cpu"
    slow = {**unit.seconds, "database": {"evaluation": 1.0}}
    stuck = predict(replace(unit, seconds=slow), demand, Deployment(100, 100, 1))
    assert stuck.bottleneck == "database_cpu"


@pytest.mark.parametrize(
    ("process", "few"),
    [("api", Deployment(4, 1, 100)), ("database", Deployment(4, 100, 1))],
)
def test_the_queue_names_the_process_at_which_workers_wait(process: str, few: Deployment) -> None:
    # The first leases look at the most partitions that wait, and are asked for at once.
    seconds = {"worker": {"partition": 0.003}, "api": {}, "database": {}}
    unit = replace(costs.load(), seconds={**seconds, process: {"waiting": 0.001}})
    demand = Demand(16 * 1024, 8, 10)
    predicted = predict(unit, demand, few)
    assert predicted.bottleneck == f"{process}_cpu"
    # It is not what that process has to do, but that all wait for it at the same moment.
    assert predicted.stages["worker_cpu"] > predicted.stages[f"{process}_cpu"]
    assert predict(unit, demand, Deployment(1, 100, 100)).bottleneck == "worker_cpu"


def test_where_each_worker_has_one_short_lease_nothing_overlaps() -> None:
    unit, demand = replace(costs.load(), fixed_seconds=0.0), Demand(10 * 1024, 8, 1)
    alone = Deployment(1, 1, 2)
    work = sum(cpu_seconds(unit, demand, 1).values())
    predicted = predict(unit, demand, alone)
    assert predicted.seconds == pytest.approx(work, rel=0.05)
    assert simulate(unit, demand, alone).seconds == pytest.approx(work, rel=0.15)


def test_servers_are_whole_and_a_small_excess_adds_none() -> None:
    assert [whole(amount) for amount in (0.01, 1, 1.04, 1.06, 3.125, 8.33)] == [1, 1, 1, 2, 3, 8]


# -- documents and definitions -----------------------------------------------------------------


COLD = Demand(1_000_000, 200, 60, state="cold")


@pytest.mark.parametrize(
    ("change", "process"),
    [
        ({"document_bytes": 2 * DOCUMENT_BYTES}, "worker"),
        ({"document_bytes": 2 * DOCUMENT_BYTES}, "api"),
        ({"variety": 4 * VARIETY}, "worker"),
    ],
)
def test_larger_and_more_various_documents_cost_more(
    change: dict[str, float], process: str
) -> None:
    unit = costs.load()
    more = replace(COLD, **change)
    assert cpu_seconds(unit, more, 4)[process] > 1.1 * cpu_seconds(unit, COLD, 4)[process]
    small, large = plan(unit, COLD), plan(unit, more)
    assert large.worker.image_bytes > small.worker.image_bytes
    assert large.network_bytes["cold"] > 1.5 * small.network_bytes["cold"]


def test_definitions_that_search_cost_many_times_those_that_look_up() -> None:
    unit = costs.load()
    used = [
        cpu_seconds(unit, Demand(1_000_000, 500, 60, searching=share), 4)["worker"]
        for share in (0.0, 0.5, 1.0)
    ]
    assert used[2] > 5 * used[0]
    assert used[1] == pytest.approx((used[0] + used[2]) / 2)


def test_searching_definitions_are_counted_as_the_benches_have_them() -> None:
    assert [Demand(1, tags, 1).searches for tags in (1, 8, 9, 500)] == [0, 0, 1, 492]
    assert Demand(1, 500, 1, searching=0.2).searches == 100


@pytest.mark.parametrize("state", ["hot", "cold"])
def test_a_plan_tells_hot_from_cold_and_what_is_spare(state: State) -> None:
    unit, demand = costs.load(), Demand(1_000_000, 200, 60, state)
    made = plan(unit, demand)
    for other, found in made.predictions.items():
        assert found == predict(unit, demand.but(state=other), made.deployment)
    assert made.predictions["cold"].seconds > made.predictions["hot"].seconds
    assert made.network_bytes["cold"] > 20 * made.network_bytes["hot"]
    most = demand.target * (1 + TOLERANCE)
    for nodes, tags in ((made.spare.nodes, demand.tags), (demand.nodes, made.spare.tags)):
        assert nodes >= demand.nodes
        assert tags >= demand.tags
        assert predict(unit, demand.scaled(nodes, tags), made.deployment).seconds <= most
        beyond = demand.scaled(round(nodes * 1.01), round(tags * 1.01) + 1)
        assert predict(unit, beyond, made.deployment).seconds > most
    assert not plan(unit, replace(demand, target=0.001)).spare.nodes


# -- tiers -----------------------------------------------------------------------------------------


def test_the_nearer_a_tier_is_the_less_a_rebuild_takes() -> None:
    unit, demand = costs.load(), Demand(1_000_000, 8, 60, "cold")
    made = plan(unit, demand)
    used = [cpu_seconds(unit, demand.but(state=state), 4) for state in STATES]
    assert [sum(each.values()) for each in used] == sorted(sum(each.values()) for each in used)
    seconds = [made.predictions[state].seconds for state in STATES]
    assert seconds == sorted(seconds)
    # What is on a worker's own disk costs the API next to nothing, and the network nothing.
    hot, warm, shared, cold = (each["api"] for each in used)
    assert warm - hot < 0.05 * (cold - hot)
    assert hot < shared < 0.5 * cold
    assert made.network_bytes["warm"] == made.network_bytes["hot"]
    assert made.network_bytes["shared"] > made.network_bytes["hot"]


@pytest.mark.parametrize("state", ["warm", "shared"])
def test_the_simulation_agrees_with_the_formula_in_every_tier(state: State) -> None:
    for nodes, tags, target in ((10_000, 8, 2), (1_000_000, 200, 30)):
        unit, demand = costs.load(), Demand(nodes, tags, target, state)
        made = plan(unit, demand)
        simulated = simulate(unit, demand, made.deployment)
        assert made.is_feasible
        assert simulated.seconds == pytest.approx(made.prediction.seconds, rel=MAX_ERROR)


def run_of(profile: str, nodes: int, own: float) -> dict[str, Any]:
    """As `bench tiers` writes it, where a node read takes a worker 10 us and 20 ns an own byte, and
    twice as much where it is shared, of which the API pays a tenth."""

    def spent(factor: float, api: float) -> dict[str, Any]:
        worker = nodes * factor * (0.01 + 0.00002 * own)
        found = {"worker": 7 + worker, "api": 30 + api * worker, "database": 20}
        return {"cpu_ms": found, "cpu_ms_8_tags": {**found, "database": 19}}

    states = {"hot": spent(0, 0), "warm": spent(1, 0), "shared": spent(2, 0.05)}
    return {"profile": profile, "nodes": nodes, "states": states}


def test_the_costs_of_tiers_are_what_their_bench_measured() -> None:
    unit = costs.load()
    bare = replace(unit, seconds={key: _without_tiers(unit, key) for key in unit.seconds})
    assert bare.states == ("hot", "cold")
    own = {name: unit.profiles[name]["wire_bytes"] for name in ("lean", "varied")}
    made = with_tiers(bare, [run_of(name, 5000, own[name]) for name in own])
    assert made.states == STATES
    assert made.seconds["worker"]["warm_node"] == pytest.approx(1e-5, rel=0.01)
    assert made.seconds["worker"]["shared_own_byte"] == pytest.approx(4e-8, rel=0.01)
    assert made.seconds["api"]["shared_node"] == pytest.approx(1e-6, rel=0.01)
    assert "warm_node" not in made.seconds["api"]
    alone = with_tiers(bare, [run_of("lean", 5000, own["lean"])])
    each = 1e-5 + 2e-8 * own["lean"]
    assert alone.seconds["worker"]["warm_own_byte"] == pytest.approx(each / own["lean"], rel=0.01)
    with pytest.raises(BenchError, match="bench tiers"):
        with_tiers(bare, [{"profile": "lean", "nodes": 1}])


def _without_tiers(unit: costs.Costs, process: str) -> dict[str, float]:
    table = unit.seconds[process]
    return {key: value for key, value in table.items() if not key.startswith(("warm", "shared"))}


def test_the_command_plans_for_each_tier(tmp_path: Path) -> None:
    file, tiers = tmp_path / "plan.json", tmp_path / "tiers.json"
    tiers.write_text(json.dumps(run_of("varied", 5000, 2000)))
    for state in ("warm", "shared", "cold"):
        call_command("capacity", f"--{state}", "--tiers", str(tiers), "--json", str(file))
        found = json.loads(file.read_text())
        assert found["demand"]["state"] == state
        assert found["seconds"] == found["seconds_by_state"][state]
    with pytest.raises(CommandError, match="give --tiers FILE"):
        call_command("capacity", "--warm", "--calibrate", str(costs.ORIGIN))


def test_a_worker_is_allowed_what_it_has_to_hold() -> None:
    unit, demand = costs.load(), Demand(1_000_000, 200, 30)
    made = plan(unit, demand)
    rounds = -(-made.partitions // made.deployment.workers)
    held = rounds * unit.partition_slots
    assert made.worker.image_bytes > held * unit.size("image", demand)
    # Both the images and the batches that they were made of are in its memory.
    assert made.worker.memory > held * unit.size("image", demand)
    # Pages of packed documents are larger than those of JSON, which the costs are of.
    assert made.worker.store_bytes > 2 * held * unit.size("store", demand)
    assert "--image-bytes" in made.worker.flags
    assert "--store-bytes" in made.worker.flags


# -- the simulation --------------------------------------------------------------------------------


@pytest.mark.parametrize("others", [{}, {"api": {}, "database": {}}])
def test_workers_that_pay_only_for_what_is_sent_can_be_planned_warm(
    others: dict[str, dict[str, float]],
) -> None:
    unit = costs.load()
    seconds = {**unit.seconds, "worker": {"cold_node": 0.0001}, **others}
    unit, demand = replace(unit, seconds=seconds), Demand(100_000, 200, 30)
    made = plan(unit, demand)
    assert made.prediction.seconds > 0
    assert simulate(unit, demand, made.deployment).seconds > 0


def test_the_same_seed_simulates_the_same() -> None:
    unit, demand = costs.load(), Demand(100_000, 50, 10)
    deployment = plan(unit, demand).deployment
    assert simulate(unit, demand, deployment, 7) == simulate(unit, demand, deployment, 7)
    assert simulate(unit, demand, deployment, 7) != simulate(unit, demand, deployment, 8)


def test_ten_million_nodes_and_more_are_simulated_in_bounded_time() -> None:
    unit = costs.load()
    began = time.process_time()
    for nodes in (10_000_000, 100_000_000):
        demand = Demand(nodes, 200, 600)
        simulated = simulate(unit, demand, plan(unit, demand).deployment)
        assert simulated.seconds > 0
    assert simulated.partitions_per_event == -(-100_000_000 // 1024 // MAX_PARTITIONS)
    assert time.process_time() - began < 30


@pytest.mark.parametrize("state", ["hot", "cold"])
@pytest.mark.parametrize("target", [1.0, 60.0, pytest.param(86_400.0, marks=pytest.mark.proof)])
def test_the_largest_fleet_in_the_smallest_partitions_is_planned_in_bounded_time(
    state: State, target: float
) -> None:
    unit = replace(costs.load(), partition_slots=8)
    demand, began = Demand(MAX_NODES, 10, target, state), time.process_time()
    simulated = simulate(unit, demand, plan(unit, demand).deployment)
    assert simulated.seconds > 0
    assert simulated.partitions_per_event >= MAX_NODES / 8 / MAX_PARTITIONS
    assert time.process_time() - began < 30


# Half of a worker's part of what is left, where it has to fetch that; all of its part and four at
# least where it holds it; sixteen at most.
SIZES = {
    ("cold", 1, 1): [1],
    ("cold", 17, 1): [9, 4, 2, 1, 1],
    ("cold", 40, 3): [7, 6, 5, 4, 3, 3, 2, 2, 2, 1, 1, 1, 1, 1, 1],
    ("cold", 5, 7): [1, 1, 1, 1, 1],
    ("warm", 1, 1): [1],
    ("warm", 17, 1): [16, 1],
    ("warm", 40, 3): [14, 9, 6, 4, 4, 3],
    ("warm", 5, 7): [4, 1],
}


@pytest.mark.django_db
@pytest.mark.parametrize(("state", "partitions", "count"), SIZES)
def test_the_queue_makes_the_leases_that_are_planned_with(
    configure: Callable[..., None], state: str, partitions: int, count: int
) -> None:
    configure(partition_slots=8)
    clusters.create("north")
    put(*(f"n{number}" for number in range(8 * partitions)), cluster="north")
    create_tag("gpu", definition=HAS_GPU)
    held = list(Partition.objects.values_list("id", flat=True)) if state == "warm" else []
    registered = [a_worker(name=str(number)) for number in range(count)]
    made = []
    for worker in itertools.cycle(registered):
        leased = len(leases.grant(worker, 256, held).answer.leases)
        if not leased:
            break
        made.append(leased)
    assert made == SIZES[state, partitions, count]


@pytest.mark.parametrize(("state", "partitions", "count"), SIZES)
def test_leases_are_counted_as_the_queue_makes_them(
    state: str, partitions: int, count: int
) -> None:
    sizes = SIZES[state, partitions, count]
    waiting = [partitions - sum(sizes[:number]) for number in range(len(sizes))]
    last = sizes[-count:]
    expected = sharing.Shared(len(sizes), sizes[0], sum(last) / len(last), sum(waiting))
    assert sharing.shared(partitions, count, is_cold=state == "cold") == expected


def test_a_slice_of_many_workers_is_like_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    # With ten partitions a worker: with two, the slowest of a thousand workers decides, and a slice
    # of fifty hardly ever has it.
    unit, demand = costs.load(), Demand(2_000_000, 500, 20)
    deployment = plan(unit, demand).deployment
    whole = simulate(unit, demand, deployment)
    assert deployment.workers > 50
    monkeypatch.setattr("loadtest.planner.simulation.MAX_WORKERS", 50)
    part = simulate(unit, demand, deployment)
    assert part.partitions_per_event > whole.partitions_per_event
    assert part.seconds == pytest.approx(whole.seconds, rel=0.1)
    assert part.utilisation == pytest.approx(whole.utilisation, rel=0.15)


@pytest.mark.parametrize("state", ["hot", "cold"])
@pytest.mark.parametrize(("nodes", "most", "each"), [(2_000_000, 500, 4), (10_000_000, 400, 32)])
def test_coarse_and_fine_simulation_agree(
    monkeypatch: pytest.MonkeyPatch, nodes: int, most: int, each: int, state: State
) -> None:
    unit, demand = costs.load(), Demand(nodes, 50, nodes / 33_000, state)
    deployment = plan(unit, demand).deployment
    fine = simulate(unit, demand, deployment).seconds
    monkeypatch.setattr("loadtest.planner.simulation.MAX_PARTITIONS", most)
    coarse = simulate(unit, demand, deployment)
    assert coarse.seconds == pytest.approx(fine, rel=0.1)
    assert coarse.partitions_per_event == each


def test_on_one_machine_nothing_is_faster_than_its_cores() -> None:
    unit, demand = costs.load(), Demand(50_000, 20, 10)
    total = sum(cpu_seconds(unit, demand, 8).values())
    simulated = simulate(unit, demand, Deployment(8, 1, 2, machine_cores=2))
    assert simulated.seconds >= total / 2 * 0.9


# -- the command -----------------------------------------------------------------------------------


def test_the_command_writes_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    call_command(
        "capacity", "--nodes", "1000000", "--tags", "200", "--target", "30s", "--json", str(file)
    )
    found = json.loads(file.read_text())
    assert found["error"] <= MAX_ERROR
    assert found["bottleneck"] in {
        *("worker_cpu", "api_cpu", "database_cpu"),
        *("latency", "lease_latency"),
    }
    for name in ("workers", "api_servers", "database_cores", "seconds", "simulated_seconds"):
        assert found[name] > 0
    assert list(found["seconds_by_state"]) == ["hot", "warm", "shared", "cold"]
    assert found["spare"]["nodes"] >= 1_000_000
    printed = " ".join(capsys.readouterr().out.split())
    for line in (*found["assumptions"], found["worker_flags"]):
        assert line in printed
    assert any("--document-bytes" in line for line in found["assumptions"])
    assert "Bottleneck" in printed
    assert "partitions = 1,000,000 nodes / 1024 slots = 977" in printed


def test_a_plan_that_the_simulation_contradicts_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtest.management.commands.capacity.MAX_ERROR", -1.0)
    with pytest.raises(CommandError, match="do not trust"):
        call_command("capacity", "--nodes", "1000")


def test_documents_are_given_by_size_and_variety_or_by_profile(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"

    def demanded(*arguments: str) -> tuple[float, float]:
        call_command("capacity", "--nodes", "10000", *arguments, "--json", str(file))
        demand = json.loads(file.read_text())["demand"]
        return demand["document_bytes"], demand["variety"]

    profiles = costs.load().profiles
    assert set(profiles) == {"lean", "server", "varied"}
    lean = (profiles["lean"]["document_bytes"], profiles["lean"]["variety"])
    assert demanded() == (DOCUMENT_BYTES, VARIETY)
    assert demanded("--document-bytes", "99000", "--variety", "0.2") == (99_000, 0.2)
    assert demanded("--profile", "lean") == lean
    assert demanded("--profile", "lean", "--variety", "0.2") == (lean[0], 0.2)


def test_a_plan_without_documents_named_is_for_those_of_the_varied_profile() -> None:
    varied = costs.load().profiles["varied"]
    assert varied["document_bytes"] == pytest.approx(DOCUMENT_BYTES, rel=0.05)
    assert varied["variety"] == pytest.approx(VARIETY, rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--document-bytes", "0"], "--document-bytes"),
        (["--document-bytes", "nan"], "--document-bytes"),
        (["--variety", "1.5"], "--variety"),
        (["--searching", "-1"], "--searching"),
        (["--profile", "wide"], "wide"),
    ],
)
def test_documents_that_cannot_be_are_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        call_command("capacity", *arguments)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("30", 30), ("2m", 120), ("500ms", 0.5), ("1h", 3600)]
)
def test_a_target_is_a_duration(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-1s", "nan", "inf", "soon"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        duration(text)


def test_capacity_needs_no_database(tmp_path: Path) -> None:
    # With a database, an embedded one would be made there.
    environment = {"TAGMILL_VAR": str(tmp_path / "var")}
    command = [sys.executable, "manage.py", "capacity", "--nodes", "10000"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    assert not list(tmp_path.glob("var/postgres"))


# -- cost files ------------------------------------------------------------------------------------


def test_the_committed_costs_say_how_each_was_measured() -> None:
    for path in (costs.DEFAULT, costs.ORIGIN):
        value = json.loads(path.read_text())
        assert value["how"]
        assert costs.load(path).name == value["name"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seconds": {}}, "not a cost file"),
        ({"overlap": None, "partition_slots": "many"}, "not a cost file"),
        ({"seconds": {"worker": {"node": -1}, "api": {}, "database": {}}}, "bad cost"),
        ({"seconds": {"worker": {"tea": 1}, "api": {}, "database": {}}}, "bad cost"),
        ({"seconds": {"worker": {}, "api": {}, "database": {}}}, "must cost something"),
    ],
)
def test_a_file_of_bad_costs_is_refused(change: dict[str, object], message: str) -> None:
    value = json.loads(costs.ORIGIN.read_text())
    with pytest.raises(BenchError, match=message):
        costs.build({**value, **change}, "test")
