"""What `manage.py tag` shows, as rich's renderables. Text of users is never markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from tagmill.fleet.models import Cluster
from tagmill.tags.explaining import EvaluatorChoice, NodeExplanation, Stored
from tagmill.tags.places import Found
from tagmill.tags.previews import Counts
from tagmill_expressions.lint import Warning, caret

TRUE, FALSE = ("✔", "green"), ("✘", "red")
# How many nodes that a path found are shown; the answer has up to 20.
MAX_HITS = 5
INDENT = "  "


def warnings(text: str, found: Sequence[Warning]) -> RenderableType:
    """Each below its place in the definition."""
    shown: list[RenderableType] = []
    for warning in found:
        line, below = caret(text, warning.column, "").split("\n")
        at = len(below.rstrip()) - 1
        end = min(len(line), at + warning.end_column - warning.column + 1)
        marks = below[:at] + "^" * max(1, end - at)
        code = (warning.code, "bold yellow")
        shown += [
            Text.assemble(INDENT, line[:at], (line[at:end], "yellow"), line[end:]),
            Text.assemble(INDENT, (marks, "yellow")),
            Text.assemble(INDENT, code, ": ", warning.message),
        ]
        if warning.rewrite is not None:
            rewrite = warning.rewrite.replace("\n", f"\n{INDENT}       ")
            shown.append(Text.assemble(INDENT, "write: ", (rewrite, "green")))
        shown.append(Text())
    return Group(*shown[:-1])


def explanation(found: NodeExplanation) -> RenderableType:
    mark, style = TRUE if found.verdict else FALSE
    verdict = "is in" if found.verdict else "is out"
    head = Text.assemble(
        (f"{mark} ", style), (f"{found.node.system_id} ({found.node.hostname}) {verdict}", "bold")
    )
    parts: list[RenderableType] = [head]
    if found.explanation is None:
        parts.append(Text("The node has no documents: it matches nothing."))
    else:
        parts.append(_tree(found.explanation))
    parts += [_evaluator(found.evaluator), _stored(found.stored, found.verdict)]
    return Group(*parts)


def _tree(part: dict[str, Any], above: Tree | None = None) -> Tree:
    mark, style = TRUE if part["verdict"] else FALSE
    label = Text.assemble((f"{mark} ", style), part["text"], (f"  {_value(part)}", "dim"))
    tree = Tree(label) if above is None else above.add(label)
    for hit in part["hits"][:MAX_HITS]:
        line = "" if hit["line"] is None else f":{hit['line']}"
        said = "  ".join(filter(None, (hit["about"], hit["text"])))
        tree.add(Text.assemble((f"{hit['path']}{line}", "cyan"), "  ", said, overflow="fold"))
    if part["hits"] and part["total"] > MAX_HITS:
        tree.add(Text(f"and {part['total'] - MAX_HITS} more", style="dim"))
    if part["missing"] is not None:
        tree.add(Text(part["missing"]["sentence"], style="yellow"))
    for operand in part["operands"]:
        _tree(operand, tree)
    if part["truncated"]:
        tree.add(Text("there was no time for the rest", style="dim"))
    return tree


def _value(part: dict[str, Any]) -> str:
    if part["type"] == "node-set":
        return f"{part['total']} found"
    if part["type"] == "boolean":
        return part["kind"] if part["kind"] in ("and", "or", "not") else ""
    if part["length"] is not None and part["length"] > len(part["value"]):
        return f"= {part['value']!r} ({part['length']:,} characters)"
    return f"= {part['value']!r}"


def _evaluator(evaluator: EvaluatorChoice) -> Text:
    name = evaluator.name or "nobody"
    return Text.assemble(("evaluated by ", "dim"), name, (f": {evaluator.reason}", "dim"))


def _stored(stored: Stored | None, verdict: bool) -> Text:
    if stored is None:
        return Text("stored: nothing, no worker has evaluated it there", style="dim")
    state = "fresh" if stored.is_fresh else "stale, to be evaluated again"
    text = (
        f"stored: {'in' if stored.is_member else 'out'} ({state}; {stored.evaluated_at:%F %T} UTC)"
    )
    return Text(text, style="dim" if stored.is_member == verdict else "yellow")


def counts(
    total: Counts, clusters: Iterable[tuple[Cluster, Counts]], compare_to: str | None
) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("cluster")
    table.add_column("nodes", justify="right")
    table.add_column("of", justify="right")
    table.add_column("share", justify="right")
    if compare_to is not None:
        table.add_column("added", justify="right", style="green")
        table.add_column("removed", justify="right", style="red")
    rows = [(cluster.name, found) for cluster, found in clusters]
    for name, found in [*rows, ("all", total)]:
        share = "-" if found.share is None else f"{found.share:.1%}"
        cells = [f"{found.nodes:,}", f"{found.evaluated_nodes:,}", share]
        if compare_to is not None:
            cells += [f"+{found.added:,}", f"-{found.removed:,}"]
        table.add_row(name, *cells, style="bold" if name == "all" else None)
    return table


def nodes(title: str, found: Sequence[Found], total: int) -> RenderableType:
    """A page of them, and how many there are."""
    shown = [Text(title, style="bold")]
    shown += [Text(f"  {node.system_id}  {node.hostname}") for node in found]
    if total > len(found):
        shown.append(Text(f"  and {total - len(found):,} more", style="dim"))
    return Group(*shown)
