"""Charts as SVG. The only module that imports matplotlib, and only when the report is made."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

# Drawn in this colour, which nothing else has; then it becomes the page's own text colour, so that
# a chart is readable in light and dark.
INK = "#0a0b0c"
# Distinct for the colour-blind (Okabe and Ito), and of enough contrast on white and on black.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56b4e9", "#8c6bb1", "#7f7f7f")

Points = Sequence[tuple[float, float]]


def lines(
    series: Mapping[str, Points],
    *,
    x: str,
    y: str,
    log_x: bool = False,
    log_y: bool = False,
) -> str:
    """One line with markers for each name."""
    figure, axes = _figure()
    for color, (name, points) in zip(_colors(len(series)), series.items(), strict=True):
        axes.plot(*zip(*sorted(points), strict=True), "o-", color=color, label=name, markersize=4)
    _finish(axes, x, y, log_x=log_x, log_y=log_y, legend=len(series) > 1)
    if log_x:
        places = sorted({place for points in series.values() for place, _ in points})
        axes.set_xticks(places, [f"{place:,g}" for place in places])
    if log_y:
        values = [value for points in series.values() for _, value in points]
        axes.set_yticks(_round_numbers(min(values), max(values)))
    return _svg(figure)


def _round_numbers(least: float, most: float) -> list[float]:
    """1, 2, 5, 10, ... from below `least` to above `most`: the ticks of a logarithmic axis."""
    if least <= 0:
        return []
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    ticks = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    below = [tick for tick in ticks if tick <= least][-1:]
    return [*below, *(tick for tick in ticks if least < tick < most * 2)]


def bars(
    groups: Sequence[str],
    series: Mapping[str, Sequence[float]],
    *,
    x: str,
    stacked: bool = False,
    log_x: bool = False,
) -> str:
    """Horizontal bars: a group each, with a bar for each name, or all of them in one."""
    figure, axes = _figure(height=1.2 + 0.36 * len(groups) * (1 if stacked else len(series)))
    height = 0.7 if stacked else 0.8 / max(1, len(series))
    starts = [0.0] * len(groups)
    for number, (name, values) in enumerate(series.items()):
        places = [place + (0 if stacked else number * height) for place in range(len(groups))]
        color = PALETTE[number % len(PALETTE)]
        axes.barh(places, values, height, left=starts if stacked else None, color=color, label=name)
        if stacked:
            starts = [start + value for start, value in zip(starts, values, strict=True)]
    middle = 0 if stacked else height * (len(series) - 1) / 2
    axes.set_yticks([place + middle for place in range(len(groups))], groups)
    axes.invert_yaxis()
    _finish(axes, x, "", log_x=log_x, legend=len(series) > 1)
    return _svg(figure)


def _figure(height: float = 3.4) -> tuple[Any, Any]:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        # Text stays text: it can be searched, and takes the page's font.
        "svg.fonttype": "none",
        # Element ids are random without it, and the same figures would make another page.
        "svg.hashsalt": "tagmill",
        "font.family": "sans-serif",
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        **{f"axes.{name}": INK for name in ("edgecolor", "labelcolor", "titlecolor")},
        **dict.fromkeys(("text.color", "xtick.color", "ytick.color"), INK),
    }
    mpl.rcParams.update(style)
    figure = Figure(figsize=(7.2, height), layout="constrained")
    return figure, figure.add_subplot()


def _colors(count: int) -> list[str]:
    return [PALETTE[number % len(PALETTE)] for number in range(count)]


def _finish(
    axes: Any,
    x: str,
    y: str,
    *,
    log_x: bool = False,
    log_y: bool = False,
    legend: bool = False,
) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    # Plain numbers: powers of ten are harder to read, and need fonts that a page may not have.
    if log_x:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:,g}")
        axes.xaxis.set_minor_formatter("")
    if log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.yaxis.set_minor_formatter("")
    else:
        axes.set_ylim(bottom=None if axes.yaxis_inverted() else 0)
    axes.grid(visible=True, color=INK, alpha=0.15, linewidth=0.6)
    axes.set_axisbelow(True)
    if legend:
        axes.figure.legend(loc="outside upper right", ncols=4, frameon=False, fontsize=9)


def _svg(figure: Any) -> str:
    """An <svg> element without a prologue, in the page's ink, on no ground of its own."""
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    # The metadata names schemas by URL, and the page is to hold none that it does not need.
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    return text.replace("<svg ", '<svg role="img" ', 1)


def unique_ids(svg: str, prefix: str) -> str:
    """Ids and references to them with a prefix: several charts share one page."""
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", svg)
    return re.sub(r'xlink:href="#([^"]+)"', rf'xlink:href="#{prefix}-\1"', svg)
