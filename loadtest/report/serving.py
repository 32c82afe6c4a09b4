"""What the report shows of benches with many clients: workers, uploads, previews, polls."""

from __future__ import annotations

from typing import Any

from loadtest.report import charts
from loadtest.report.pieces import Section, figure, mismatches, number, table, text


def fleet(name: str, result: dict[str, Any]) -> Section:
    steps = result["steps"]
    throughput = charts.lines(
        {"partitions/s": [(step["workers"], step["completions_per_second"]) for step in steps]},
        x="workers",
        y="partitions/s",
        log_x=True,
    )
    latency = charts.lines(
        {
            f"lease {share}": [(step["workers"], step[f"lease_{share}_ms"]) for step in steps]
            for share in ("p50", "p95")
        },
        x="workers",
        y="ms",
        log_x=True,
    )
    processes = sorted({name for step in steps for name in step["cores"]})
    used = {
        name: [(step["workers"], step["cores"].get(name, 0.0)) for step in steps]
        for name in processes
    }
    rows = [
        [
            str(step["workers"]),
            f"{step['completions_per_second']:,.1f}",
            f"{step['lease_p50_ms']:.1f}",
            f"{step['lease_p95_ms']:.1f}",
            *(f"{step['cores'].get(name, 0.0):.2f}" for name in processes),
        ]
        for step in steps
    ]
    heads = ["workers", "partitions/s", "lease p50 ms", "p95 ms"]
    return [
        "<h2>Saturation</h2>",
        f"<p>One API core feeds {result['workers_per_api_core']:.1f} workers that evaluate a "
        f"partition in {result['evaluation_seconds']:.3f} s. First to saturate: "
        f"<b>{text(result['bottleneck'])}</b>.</p>",
        *figure(f"{name}-throughput", throughput),
        *figure(f"{name}-latency", latency),
        *figure(f"{name}-cores", charts.lines(used, x="workers", y="cores", log_x=True)),
        table(heads + [f"cores: {name}" for name in processes], rows),
    ]


def preview(name: str, result: dict[str, Any]) -> Section:
    phases = result["phases_p50_ms"]
    chart = charts.bars(list(phases), {"ms": list(phases.values())}, x="ms, median of each phase")
    rows = [["p50", f"{result['p50_ms']:.0f}"], ["p95", f"{result['p95_ms']:.0f}"]]
    out = [
        f"<h2>A preview over {result['nodes']:,} nodes</h2>",
        f"<p>{result['previews']} expressions that were not seen before, {result['workers']} "
        f"warm workers, {result['partitions']} partitions.</p>",
        *figure(name, chart),
        table(["whole answer", "ms"], rows),
    ]
    if beside := result["rebuild"]:
        out.append(
            f"<p>A rebuild of {beside['tags']} tags takes {beside['ratio']:.2f} of its time while "
            f"{beside['clients']} clients preview without pause (their p50 "
            f"{beside['preview_p50_ms']:.0f} ms, p95 {beside['preview_p95_ms']:.0f} ms).</p>"
        )
    return [*out, mismatches(result)]


def change(name: str, result: dict[str, Any]) -> Section:
    clients = list(result["uploads"])
    without = result["puts_per_second_without_tags"]
    chart = charts.bars(
        [f"{count} clients" for count in clients],
        {
            f"{result['tags']} tags": list(result["puts_per_second"].values()),
            "no tag": list(without.values()),
        },
        x="uploads a second",
    )
    uploads = [
        [
            count,
            f"{found['per_second']:,.1f}",
            f"{without[count]:,.1f}",
            f"{found['p50_ms']:.1f}",
            f"{found['p95_ms']:.1f}",
            f"{found['settled_share']:.0%}",
        ]
        for count, found in result["uploads"].items()
    ]
    delays = [
        [f"{tags} tags, {state}", f"{found['p50']:.1f}", f"{found['p95']:.1f}"]
        for tags, states in result["visible_ms_by_tags"].items()
        for state, found in states.items()
    ]
    imported, cpu = result["import"], result["cpu_ms_per_change"]
    costs = [
        ["match rows written a change", f"{result['match_rows_per_change']:.2f}"],
        ["bytes of WAL a change", f"{result['wal_bytes_per_change']:,.0f}"],
        *([f"CPU ms a change, {part}", number(spent)] for part, spent in cpu.items()),
        ["imported nodes a second, changed", f"{imported['changed_per_second']:,.0f}"],
        ["imported nodes a second, unchanged", f"{imported['unchanged_per_second']:,.0f}"],
    ]
    heads = ["clients", "uploads/s", "without tags", "p50 ms", "p95 ms", "settled"]
    return [
        f"<h2>A change, of {result['nodes']:,} nodes with {result['tags']} tags</h2>",
        *figure(name, chart),
        table(heads, uploads),
        table(["from the request to the tag, ms", "p50", "p95"], delays),
        table(["", ""], costs),
        mismatches(result),
    ]


def polls(name: str, result: dict[str, Any]) -> Section:
    chart = charts.bars(
        ["p50", "p95", "worst"],
        {"ms": [result["p50_ms"], result["p95_ms"], result["worst_ms"]]},
        x="ms from the commit that makes work to the lease",
    )
    rows = [
        ["parked polls", f"{result['polls']:,}"],
        ["threads of the server", str(result["threads"])],
        ["leases, one at a time", str(result["leases"])],
        [f"{result['burst_leases']} leases at once, ms", f"{result['burst_ms']:.0f}"],
    ]
    return ["<h2>Waiting workers</h2>", *figure(name, chart), table(["", ""], rows)]


def cache(name: str, result: dict[str, Any]) -> Section:
    sizes = result["sizes"]
    names = list(sizes[0]["arms"])

    def drawn(measure: str) -> str:
        series = {
            arm: [(row["nodes"], row["arms"][arm][measure]) for row in sizes] for arm in names
        }
        return charts.lines(series, x="nodes of the list", y="ms", log_x=True, log_y=True)

    rows = [
        [
            f"{row['nodes']:,}",
            *(
                f"{row['arms'][arm]['avg_ms']:.2f} / {row['arms'][arm]['p99_ms']:.2f} / "
                f"{row['arms'][arm]['cpu_ms']:.2f}"
                for arm in names
            ),
        ]
        for row in sizes
    ]
    ratios = result["ratios"]
    return [
        "<h2>Lists out of the body cache</h2>",
        f"<p>{result['calls']:,} calls by {result['threads']} clients for each list. Out of the "
        f"cache the longest list comes <b>{ratios['at_3000']:.1f}</b> times as fast, for "
        f"{ratios['cpu_at_3000']:.1f} times less of the server's CPU; the shortest "
        f"{ratios['at_10']:.1f} times as fast. Clients that miss at once: "
        f"{result['builds_for_concurrent_misses']} build. Stale: {result['stale']}.</p>",
        *figure(f"{name}-latency", drawn("avg_ms")),
        *figure(f"{name}-cpu", drawn("cpu_ms")),
        table(["nodes", *(f"{arm}: avg / p99 / CPU ms" for arm in names)], rows),
    ]


def batch(name: str, result: dict[str, Any]) -> Section:
    arms = result["arms"]
    names = list(dict.fromkeys(arm["name"] for arm in arms))
    cases = list(dict.fromkeys((arm["state"], arm["table"]) for arm in arms))
    found = {(arm["name"], arm["state"], arm["table"]): arm for arm in arms}

    def drawn(measure: str, factor: float, x: str) -> str:
        series = {
            f"{state}, {table}": [factor * found[arm, state, table][measure] for arm in names]
            for state, table in cases
        }
        return charts.bars(names, series, x=x, log_x=True)

    rows = [
        [
            f"{arm['name']}, {arm['state']}, {arm['table']}",
            f"{arm['round_trips']:,}",
            f"{1000 * arm['seconds']:,.0f}",
            f"{1000 * arm['seconds_min']:,.0f} to {1000 * arm['seconds_max']:,.0f}",
            f"{arm['bytes'] / 1e6:.2f}",
            f"{arm['blocks_read']:,}",
            f"{arm['read_ms']:.1f}",
            f"{arm['disk_bytes'] / 1e6:.2f}",
            f"{1000 * arm['api_cpu']:,.0f} / {1000 * arm['database_cpu']:,.0f}",
        ]
        for arm in arms
    ]
    heads = ["", "round trips", "ms", "spread", "MB sent", "blocks read", "waited for them, ms"]
    said = "; ".join(f"{text(key)} <b>{value:,}</b>" for key, value in result["ratios"].items())
    return [
        f"<h2>{result['nodes']:,} documents in {result['groups']} groups, one by one and by "
        "groups</h2>",
        f"<p>Medians of {result['repetitions']} alternated runs. {said}.</p>",
        *figure(f"{name}-seconds", drawn("seconds", 1000, "ms")),
        table([*heads, "MB of the disk", "CPU ms, API / database"], rows),
        f"<p>Documents that were not read as they were stored: <b>{result['mismatches']}</b>.</p>",
    ]
