"""What the report shows of each bench: a heading, charts and tables as pieces of HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from loadtest.report import charts

Section = list[str]


def _rebuild(name: str, result: dict[str, Any]) -> Section:
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
            _cpu(arm["cpu_seconds"]),
        ]
        for arm in arms
    ]
    return [
        f"<h2>A rebuild of {result['nodes']:,} nodes with {text(result['evaluator'])}, against "
        "xpath_exists</h2>",
        *_figure(name, chart),
        _table(["arm", "seconds", "nodes/s", "matched", "CPU seconds"], rows),
        _table(["ratio", ""], [[name, f"{value:.3f}"] for name, value in result["ratios"].items()]),
        _mismatches(result),
    ]


def _evaluate(name: str, result: dict[str, Any]) -> Section:
    arms = result["arms"]
    costs = {"us": [arm["us_per_document"] for arm in arms]}
    names = [arm["name"] for arm in arms]
    chart = charts.bars(names, costs, x="µs a document and expression (logarithmic)", log_x=True)
    rows = [[arm["name"], f"{arm['us_per_document']:,.2f}"] for arm in arms]
    return [
        f"<h2>One expression on one document of {result['document_bytes_mean'] / 1000:.0f} kB</h2>",
        *_figure(name, chart),
        _table(["arm", "µs"], rows),
        _mismatches(result),
    ]


def _sweep(name: str, result: dict[str, Any]) -> Section:
    out = [f"<h2>Batches, read-ahead, workers: {result['nodes']:,} nodes</h2>"]
    for state in ("cold", "warm"):
        rows = [row for row in result["points"] if row["state"] == state]
        names = [_point(row) for row in rows]
        processes = sorted({name for row in rows for name in row["cpu_seconds"]})
        spent = {name: [row["cpu_seconds"].get(name, 0.0) for row in rows] for name in processes}
        chart = charts.bars(names, spent, x=f"CPU seconds, {state}", stacked=True)
        best = result["sweet_spot"].get(state)
        table = [
            [
                ("★ " if row == best else "") + _point(row),
                f"{row['cpu_seconds_total']:.2f}",
                _cpu(row["cpu_seconds"]),
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
        out += [f"<h3>{state}</h3>", *_figure(f"{name}-{state}", chart), _table(heads, table)]
    return [*out, '<p class="faint">★ the sweet spot</p>', _mismatches(result)]


def _growth(name: str, result: dict[str, Any]) -> Section:
    points = result["points"]
    out = ["<h2>Growth</h2>"]
    for key, label in (("cold_seconds", "cold"), ("warm_seconds", "warm")):
        series = {
            f"{tags} tags": [(row["nodes"], row[key]) for row in points if row["tags"] == tags]
            for tags in sorted({row["tags"] for row in points})
        }
        chart = charts.lines(series, x="nodes", y=f"seconds, {label}", log_x=True, log_y=True)
        out += [f"<h3>{label}</h3>", *_figure(f"{name}-{label}", chart)]
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
    out += ["<h3>memory and disk</h3>", *_figure(f"{name}-size", chart)]
    out.append(_table([*heads, "database MB"], rows))
    names = list(result["exponents"])
    exponents = [
        [along, *(_number(result[key][name]) for name in names)]
        for along, key in (("in nodes", "exponents"), ("in tags", "tag_exponents"))
    ]
    out.append(_table(["exponent", *names], exponents))
    if updates := result.get("updates"):
        out.append(
            f"<p>{updates['accepted_per_second']:.0f} updates a second were accepted while "
            f"rebuilds ran; from an update to its tags it took {updates['delay_p50_ms']:.0f} ms "
            f"(p95 {updates['delay_p95_ms']:.0f} ms).</p>"
        )
    return [*out, _mismatches(result)]


def _fleet(name: str, result: dict[str, Any]) -> Section:
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
        *_figure(f"{name}-throughput", throughput),
        *_figure(f"{name}-latency", latency),
        *_figure(f"{name}-cores", charts.lines(used, x="workers", y="cores", log_x=True)),
        _table(heads + [f"cores: {name}" for name in processes], rows),
    ]


def _capacity(name: str, result: dict[str, Any]) -> Section:
    demand = result["demand"]
    names = list(result["stages"])
    chart = charts.bars(
        [*names, "simulation"],
        {"seconds": [*result["stages"].values(), result["simulated_seconds"]]},
        x="seconds",
    )
    rows = [
        ["workers", f"{result['workers']:,}"],
        ["API servers", f"{result['api_servers']:,}"],
        ["database cores", f"{result['database_cores']:,}"],
        ["database disk, GB", f"{result['database_bytes'] / 1e9:.2f}"],
        ["network, MB/s", f"{result['network_bytes_per_second'] / 1e6:.2f}"],
        ["memory a worker, MB", f"{result['worker_memory_bytes'] / 1e6:.0f}"],
        *([["options of a worker", result["worker_flags"]]] if "worker_flags" in result else []),
        ["seconds, formula", f"{result['seconds']:.2f}"],
        ["seconds, simulation", f"{result['simulated_seconds']:.2f}"],
        ["error", f"{result['error']:.1%}"],
        ["bottleneck", result["bottleneck"]],
    ]
    return [
        f"<h2>The plan: {demand['nodes']:,} nodes, {demand['tags']:,} tags in "
        f"{demand['target']:g} s</h2>",
        *_figure(name, chart),
        _table(["", ""], rows),
        f"<pre>{text(chr(10).join(result['formula']))}</pre>",
        *(f"<p>Assumed: {text(line)}.</p>" for line in result.get("assumptions", [])),
    ]


def _check(name: str, result: dict[str, Any]) -> Section:
    rows = [
        [
            row.get("name", f"{row['state']}, {row['workers']} workers"),
            f"{row['seconds']:.3f}",
            f"{row['formula_seconds']:.3f} ({row['formula_error']:.0%})",
            f"{row['simulated_seconds']:.3f} ({row['simulation_error']:.0%})",
            f"{row['cpu_seconds_total']:.3f}",
            f"{row['formula_cpu_seconds']:.3f} ({row['cpu_error']:.0%})",
        ]
        for row in result["rows"]
    ]
    heads = ["sweep", "measured s", "formula", "simulation", "CPU s", "formula's"]
    # Files of before have one median over both states.
    by_state = result.get("errors_by_state", {"all": result["errors"]})
    errors = "; ".join(
        f"{text(state)}: " + ", ".join(f"{name} {value:.0%}" for name, value in found.items())
        for state, found in by_state.items()
    )
    groups = [row[0] for row in rows]
    chart = charts.bars(
        groups,
        {
            "measured": [row["seconds"] for row in result["rows"]],
            "formula": [row["formula_seconds"] for row in result["rows"]],
            "simulation": [row["simulated_seconds"] for row in result["rows"]],
        },
        x="seconds",
    )
    return [
        "<h2>The plan's formula and simulation, against the sweep</h2>",
        *_figure(name, chart),
        _table(heads, rows),
        f"<p>Median errors, {errors}.</p>",
        *(_worst(result["worst"]) if "worst" in result else []),
    ]


def _calibrate(name: str, result: dict[str, Any]) -> Section:
    seconds = result["seconds"]
    units = list(dict.fromkeys(unit for table in seconds.values() for unit in table))
    rows = [
        [unit, *(_number(seconds[name].get(unit, 0.0) * 1e6) for name in seconds)] for unit in units
    ]
    heads = ["µs of CPU for one", *seconds]
    out = [f"<h2>Unit costs ({text(result['evaluator'])})</h2>", _table(heads, rows)]
    if "fit_worst" in result:
        out += _worst({"measure": "of the fit, CPU seconds"} | result["fit_worst"]["total"])
    return out


def _worst(found: dict[str, Any]) -> list[str]:
    return [
        f"<p>Worst error ({text(found['measure'])}): <b>{found['error']:.0%}</b>, "
        f"{text(found['at'])}.</p>"
    ]


def _preview(name: str, result: dict[str, Any]) -> Section:
    phases = result["phases_p50_ms"]
    chart = charts.bars(list(phases), {"ms": list(phases.values())}, x="ms, median of each phase")
    rows = [["p50", f"{result['p50_ms']:.0f}"], ["p95", f"{result['p95_ms']:.0f}"]]
    out = [
        f"<h2>A preview over {result['nodes']:,} nodes</h2>",
        f"<p>{result['previews']} expressions that were not seen before, {result['workers']} "
        f"warm workers, {result['partitions']} partitions.</p>",
        *_figure(name, chart),
        _table(["whole answer", "ms"], rows),
    ]
    if beside := result["rebuild"]:
        out.append(
            f"<p>A rebuild of {beside['tags']} tags takes {beside['ratio']:.2f} of its time while "
            f"{beside['clients']} clients preview without pause (their p50 "
            f"{beside['preview_p50_ms']:.0f} ms, p95 {beside['preview_p95_ms']:.0f} ms).</p>"
        )
    return [*out, _mismatches(result)]


def _change(name: str, result: dict[str, Any]) -> Section:
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
        *([f"CPU ms a change, {part}", _number(spent)] for part, spent in cpu.items()),
        ["imported nodes a second, changed", f"{imported['changed_per_second']:,.0f}"],
        ["imported nodes a second, unchanged", f"{imported['unchanged_per_second']:,.0f}"],
    ]
    heads = ["clients", "uploads/s", "without tags", "p50 ms", "p95 ms", "settled"]
    return [
        f"<h2>A change, of {result['nodes']:,} nodes with {result['tags']} tags</h2>",
        *_figure(name, chart),
        _table(heads, uploads),
        _table(["from the request to the tag, ms", "p50", "p95"], delays),
        _table(["", ""], costs),
        _mismatches(result),
    ]


def _polls(name: str, result: dict[str, Any]) -> Section:
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
    return ["<h2>Waiting workers</h2>", *_figure(name, chart), _table(["", ""], rows)]


SECTIONS: dict[str, Callable[[str, dict[str, Any]], Section]] = {
    "rebuild": _rebuild,
    "evaluate": _evaluate,
    "sweep": _sweep,
    "growth": _growth,
    "change": _change,
    "preview": _preview,
    "polls": _polls,
    "fleet": _fleet,
    "capacity": _capacity,
    "check": _check,
    "calibrate": _calibrate,
}


# -- pieces ----------------------------------------------------------------------------------------


def _figure(name: str, svg: str) -> list[str]:
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", name)  # part of ids, and of references to them
    return ["<figure>", charts.unique_ids(svg, name), "</figure>"]


def _table(heads: Iterable[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{text(cell)}</th>" for cell in heads)
    lines = ("<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(lines)}</table></div>'


def text(value: object) -> str:
    return html.escape(str(value))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"


def _cpu(seconds: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in seconds.items())


def _point(row: dict[str, Any]) -> str:
    mib = 1 << 20
    # Files of before have one profile and one number of tags.
    name = f"{row['profile']}, {row['tags']} tags: " if "profile" in row else ""
    return name + (
        f"{row['batch_nodes']} / {row['batch_bytes'] / mib:g} / {row['prefetch'] / mib:g} / "
        f"{row['workers']}"
    )


def _mismatches(result: dict[str, Any]) -> str:
    return f"<p>Answers that differ from lxml's: <b>{result.get('mismatches', 0)}</b>.</p>"
