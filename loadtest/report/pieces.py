"""Pieces of HTML that the sections are made of."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any

from loadtest.report import charts

Section = list[str]
"""A heading, charts and tables."""


def figure(name: str, svg: str) -> list[str]:
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", name)  # part of ids, and of references to them
    return ["<figure>", charts.unique_ids(svg, name), "</figure>"]


def table(heads: Iterable[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{text(cell)}</th>" for cell in heads)
    lines = ("<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(lines)}</table></div>'


def text(value: object) -> str:
    return html.escape(str(value))


def number(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"


def cpu(seconds: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in seconds.items())


def mismatches(result: dict[str, Any]) -> str:
    return f"<p>Answers that differ from lxml's: <b>{result.get('mismatches', 0)}</b>.</p>"
