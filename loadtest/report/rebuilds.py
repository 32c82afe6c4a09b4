"""What the report shows of benches that rebuild: how fast, and with how much of everything."""

from __future__ import annotations

from typing import Any

from loadtest.report import charts
from loadtest.report.pieces import Section, cpu, figure, mismatches, number, table, text


def rebuild(name: str, result: dict[str, Any]) -> Section:
    arms = result["arms"]
    chart = charts.bars(
        [arm["name"] for arm in arms], {"seconds": [arm["seconds"] for arm in arms]}, x="seconds"
    )
    rows = [
        [
            arm["name"],
            f"{arm['seconds']:.3f}",
            f"{arm['nodes_per_second']:,.0f}",
            f"{arm['matched']:,}",
            cpu(arm["cpu_seconds"]),
        ]
        for arm in arms
    ]
    return [
        f"<h2>A rebuild of {result['nodes']:,} nodes with {text(result['evaluator'])}, against "
        "xpath_exists</h2>",
        *figure(name, chart),
        table(["arm", "seconds", "nodes/s", "matched", "CPU seconds"], rows),
        table(["ratio", ""], [[name, f"{value:.3f}"] for name, value in result["ratios"].items()]),
        mismatches(result),
    ]


def evaluate(name: str, result: dict[str, Any]) -> Section:
    arms = result["arms"]
    costs = {"us": [arm["us_per_document"] for arm in arms]}
    names = [arm["name"] for arm in arms]
    chart = charts.bars(names, costs, x="µs a document and expression (logarithmic)", log_x=True)
    rows = [[arm["name"], f"{arm['us_per_document']:,.2f}"] for arm in arms]
    return [
        f"<h2>One expression on one document of {result['document_bytes_mean'] / 1000:.0f} kB</h2>",
        *figure(name, chart),
        table(["arm", "µs"], rows),
        mismatches(result),
    ]


def sweep(name: str, result: dict[str, Any]) -> Section:
    out = [f"<h2>Batches, read-ahead, workers: {result['nodes']:,} nodes</h2>"]
    for state in ("cold", "warm"):
        rows = [row for row in result["points"] if row["state"] == state]
        names = [_point(row) for row in rows]
        processes = sorted({name for row in rows for name in row["cpu_seconds"]})
        spent = {name: [row["cpu_seconds"].get(name, 0.0) for row in rows] for name in processes}
        chart = charts.bars(names, spent, x=f"CPU seconds, {state}", stacked=True)
        best = result["sweet_spot"].get(state)
        cells = [
            [
                ("★ " if row == best else "") + _point(row),
                f"{row['cpu_seconds_total']:.2f}",
                cpu(row["cpu_seconds"]),
                f"{row['round_trips']:,}",
                f"{row['sent_bytes'] / 1e6:.2f}",
                f"{row['memory_bytes']['worker'] / 1e6:.0f}",
                f"{row['seconds']:.3f} ({row['seconds_spread'][0]:.3f} to "
                f"{row['seconds_spread'][1]:.3f})",
            ]
            for row in rows
        ]
        heads = ["batch nodes / MiB / ahead MiB / workers", "CPU s", "by process"]
        heads += ["trips", "MB sent", "worker MB", "seconds (spread)"]
        out += [f"<h3>{state}</h3>", *figure(f"{name}-{state}", chart), table(heads, cells)]
    return [*out, '<p class="faint">★ the sweet spot</p>', mismatches(result)]


def _point(row: dict[str, Any]) -> str:
    mib = 1 << 20
    # Files of before have one profile and one number of tags.
    name = f"{row['profile']}, {row['tags']} tags: " if "profile" in row else ""
    return name + (
        f"{row['batch_nodes']} / {row['batch_bytes'] / mib:g} / {row['prefetch'] / mib:g} / "
        f"{row['workers']}"
    )


def growth(name: str, result: dict[str, Any]) -> Section:
    points = result["points"]
    out = ["<h2>Growth</h2>"]
    for key, label in (("cold_seconds", "cold"), ("warm_seconds", "warm")):
        series = {
            f"{tags} tags": [(row["nodes"], row[key]) for row in points if row["tags"] == tags]
            for tags in sorted({row["tags"] for row in points})
        }
        chart = charts.lines(series, x="nodes", y=f"seconds, {label}", log_x=True, log_y=True)
        out += [f"<h3>{label}</h3>", *figure(f"{name}-{label}", chart)]
    most = max(row["tags"] for row in points)
    sizes = [row for row in points if row["tags"] == most]
    series = {
        "database": [(row["nodes"], row["database_bytes"] / 1e6) for row in sizes],
        "worker": [(row["nodes"], row["worker_memory_bytes"] / 1e6) for row in sizes],
    }
    chart = charts.lines(series, x="nodes", y="MB", log_x=True, log_y=True)
    rows = [
        [
            f"{row['nodes']:,}",
            str(row["tags"]),
            *(f"{row[key]:.3f}" for key in ("cold_seconds", "warm_seconds")),
            *(f"{row[key]:.2f}" for key in ("cold_cpu_seconds", "warm_cpu_seconds")),
            f"{row['worker_memory_bytes'] / 1e6:.0f}",
            f"{row['database_bytes'] / 1e6:.1f}",
        ]
        for row in points
    ]
    heads = ["nodes", "tags", "cold s", "warm s", "cold CPU s", "warm CPU s", "worker MB"]
    out += ["<h3>memory and disk</h3>", *figure(f"{name}-size", chart)]
    out.append(table([*heads, "database MB"], rows))
    names = list(result["exponents"])
    exponents = [
        [along, *(number(result[key][name]) for name in names)]
        for along, key in (("in nodes", "exponents"), ("in tags", "tag_exponents"))
    ]
    out.append(table(["exponent", *names], exponents))
    if updates := result.get("updates"):
        out.append(
            f"<p>{updates['accepted_per_second']:.0f} updates a second were accepted while "
            f"rebuilds ran; from an update to its tags it took {updates['delay_p50_ms']:.0f} ms "
            f"(p95 {updates['delay_p95_ms']:.0f} ms).</p>"
        )
    return [*out, mismatches(result)]
