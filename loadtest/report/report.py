"""`bench report DIR`: one self-contained HTML page from the JSON files of the benches in DIR.

A file is recognised by its `bench` member; any may be missing, and of several of one kind (a sweep
with each evaluator, a rebuild of two fleets) each has its section, which is named after the file.
"""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from rich.console import Console

from loadtest.bench import Bench, BenchError, Session, read_json
from loadtest.report.pieces import Section, text
from loadtest.report.sections import SECTIONS

STYLE = """
:root { color-scheme: light dark;
  --ink: #1b1f24; --ground: #fff; --faint: #59636e; --line: #d0d7de }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --ground: #0d1117; --faint: #9198a1; --line: #30363d } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; background: var(--ground);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif }
h1, h2 { line-height: 1.2 } h2 { margin-top: 3rem }
svg { width: 100%; height: auto; max-width: 46rem; color: var(--ink); display: block }
.wide { overflow-x: auto } .faint { color: var(--faint) }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .75rem;
  text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
th { white-space: normal; color: var(--faint); font-weight: 600 }
pre { overflow-x: auto; white-space: pre-wrap }
"""
TAKEN_WITH = {
    "rebuild": "manage.py bench rebuild",
    "evaluate": "manage.py bench evaluate",
    "sweep": "manage.py bench sweep",
    "growth": "manage.py bench growth",
    "change": "manage.py bench change",
    "preview": "manage.py bench preview",
    "polls": "manage.py bench polls",
    "cache": "manage.py bench cache",
    "batch": "manage.py bench batch",
    "fleet": "manage.py bench fleet",
    "capacity": "manage.py capacity",
    "check": "manage.py bench capacity",
    "calibrate": "manage.py bench calibrate",
}


def load_results(directory: Path) -> dict[str, dict[str, Any]]:
    """The result of each bench by its file's stem. Raises BenchError when there is none."""
    found = {}
    for path in sorted(directory.glob("*.json")):
        result = read_json(path)
        if kind(path.stem, result) in TAKEN_WITH:
            found[path.stem] = result
    if not found:
        raise BenchError(f"{directory} has no JSON file of a bench")
    return found


def kind(name: str, result: dict[str, Any]) -> str:
    return str(result.get("bench", name))


def page(results: dict[str, dict[str, Any]]) -> str:
    """The HTML. The same results make the same page."""
    body: Section = ["<h1>Tagmill, measured</h1>"]
    machines = {_machine(result) for result in results.values() if "machine" in result}
    body += [f'<p class="faint">{text(line)}</p>' for line in sorted(machines)]
    missing = []
    for sort, make in SECTIONS.items():
        names = [name for name, result in results.items() if kind(name, result) == sort]
        for name in names:
            body += [f'<section id="{text(name)}">', *make(name, results[name])]
            body += [f'<p class="faint"><code>{TAKEN_WITH[sort]}</code></p>', "</section>"]
        if not names:
            missing.append(sort)
    if missing:
        body.append(f'<p class="faint">Not measured here: {", ".join(missing)}.</p>')
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Tagmill, measured</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _machine(result: dict[str, Any]) -> str:
    it = result["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in it["versions"].items())
    memory = it["memory_bytes"] / (1 << 30)
    return (
        f"{it['processor']}, {it['cores']} cores, {memory:.0f} GiB, {it['system']}, "
        f"Python {it['python']}, {versions}"
    )


class ReportBench(Bench):
    name = "report"
    help = "one HTML page with charts from the JSON files of other benches"
    needs_database = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("directory", type=Path, metavar="DIR", help="with the JSON files")
        parser.add_argument("--out", type=Path, metavar="FILE", help="instead of DIR/report.html")

    def run(self, options: dict[str, Any], session: Session) -> dict[str, Any]:
        results = load_results(options["directory"])
        out = options["out"] or options["directory"] / "report.html"
        try:
            whole = page(results)
        except (KeyError, TypeError, ValueError) as error:
            raise BenchError(f"a JSON file is not what this version writes: {error!r}") from error
        out.write_text(whole, encoding="utf-8")
        return {"bench": "report", "page": str(out), "sections": list(results), "bytes": len(whole)}

    def show(self, console: Console, result: dict[str, Any]) -> None:
        console.print(f"{result['page']}: {', '.join(result['sections'])}", soft_wrap=True)
