"""`manage.py tag lint|explain|preview`: see a definition before it is committed."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from typing import Any, cast

import orjson
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from tagmill.errors import InvalidDefinition, TagmillError
from tagmill.fleet import clusters
from tagmill.fleet.models import Cluster
from tagmill.tags import explaining, linting, previews
from tagmill.tags.management import shown
from tagmill.tags.models import Preview, Tag

# Previews belong to somebody: those of this command to a user who cannot log in.
USER = "manage.py"
POLL_SECONDS = 0.1
WAIT_SECONDS = 60.0
WHOLE_LINES = 1_000_000


class Command(BaseCommand):
    help = "See what a definition says and matches: before it is committed, or while it stands."

    def add_arguments(self, parser: ArgumentParser) -> None:
        calls = parser.add_subparsers(dest="call", required=True, metavar="lint|explain|preview")
        common = ArgumentParser(add_help=False)
        common.add_argument("-d", "--definition", metavar="XPATH")
        common.add_argument(
            "-n",
            "--namespace",
            action="append",
            default=[],
            metavar="PREFIX=URI",
            help="of the definition; repeatable",
        )
        lint = calls.add_parser(
            "lint", parents=[common], help="what a definition says other than was meant"
        )
        lint.add_argument("tags", nargs="*", metavar="TAG", help="default: all tags")
        lint.add_argument("--json", action="store_true", help="one JSON object a line")
        lint.add_argument("--strict", action="store_true", help="fail when there are warnings")
        explain = calls.add_parser(
            "explain", parents=[common], help="why a node is in a tag, or out"
        )
        explain.add_argument("tag", nargs="?", metavar="TAG")
        explain.add_argument("--node", required=True, metavar="SYSTEM_ID")
        explain.add_argument("--json", action="store_true")
        preview = calls.add_parser(
            "preview", parents=[common], help="which nodes a definition would match"
        )
        preview.add_argument(
            "tag", nargs="?", metavar="TAG", help="say what would change if it got the definition"
        )
        preview.add_argument("--nodes", type=int, default=10, metavar="N", help="nodes shown")
        preview.add_argument("--cluster", metavar="NAME", help="count and show its nodes alone")
        preview.add_argument(
            "--out", action="store_true", help="show the nodes that it does not match, too"
        )
        preview.add_argument(
            "--wait", type=float, default=WAIT_SECONDS, metavar="SECONDS", help="at most"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        self.console = Console(
            file=cast(Any, self.stdout)._out,
            no_color=options["no_color"] or None,
            force_terminal=options["force_color"] or None,
            highlight=False,
            soft_wrap=True,
        )
        if not self.console.is_terminal:
            # Nobody reads it at some width: a pipe gets whole lines.
            self.console.width = WHOLE_LINES
        namespaces = dict(_pair(text) for text in options["namespace"])
        call = {"lint": self._lint, "explain": self._explain, "preview": self._preview}
        try:
            call[options["call"]](options, namespaces)
        except InvalidDefinition as error:
            place = error.extra.get("caret", error.detail)
            rewrite = error.extra.get("rewrite")
            hint = "" if rewrite is None else f"\nwrite: {rewrite}"
            raise CommandError(f"this is no definition:\n{place}{hint}") from None
        except TagmillError as error:
            raise CommandError(error.detail) from None

    # -- lint ------------------------------------------------------------------------------------

    def _lint(self, options: dict[str, Any], namespaces: dict[str, str]) -> None:
        found = list(_definitions(options, namespaces))
        warned = 0
        form_only = False
        for name, text, prefixes in found:
            answer = linting.lint(text, prefixes)
            form_only |= answer.documents is None
            warned += bool(answer.warnings)
            if options["json"]:
                warnings = [warning.to_dict() for warning in answer.warnings]
                line = {"tag": name, "definition": text, "warnings": warnings}
                self.stdout.write(orjson.dumps(line, option=orjson.OPT_UTC_Z).decode())
            elif answer.warnings:
                if name is not None:
                    self.console.print(Text(name, style="bold"))
                self.console.print(shown.warnings(text, answer.warnings), "")
        if not options["json"]:
            self._summary(len(found), warned, form_only)
        if warned and options["strict"]:
            raise CommandError(f"{warned} of {len(found)} definitions have warnings")

    def _summary(self, count: int, warned: int, form_only: bool) -> None:
        if form_only:
            self.console.print(
                "[dim]Not every partition's documents are known yet: names and values were not"
                " looked up.[/dim]"
            )
        counted = f"{count} definition{'' if count == 1 else 's'}"
        self.console.print(f"{counted}, {warned or 'none'} with warnings.")

    # -- explain ---------------------------------------------------------------------------------

    def _explain(self, options: dict[str, Any], namespaces: dict[str, str]) -> None:
        if (options["tag"] is None) == (options["definition"] is None):
            raise CommandError("name a TAG, or give a --definition")
        if options["tag"] is not None:
            found = explaining.of_tag(options["tag"], options["node"])
        else:
            found = explaining.of_definition(options["definition"], namespaces, options["node"])
        if options["json"]:
            line = {
                "node": found.node.system_id,
                "verdict": found.verdict,
                "explanation": found.explanation,
                "evaluator": found.evaluator,
                "stored": found.stored,
            }
            self.stdout.write(orjson.dumps(line, option=orjson.OPT_UTC_Z).decode())
            return
        self.console.print(shown.explanation(found), soft_wrap=False)

    # -- preview ---------------------------------------------------------------------------------

    def _preview(self, options: dict[str, Any], namespaces: dict[str, str]) -> None:
        text, tag = options["definition"], options["tag"]
        if text is None:
            raise CommandError("give the definition to preview: --definition XPATH")
        found = linting.lint(text, namespaces).warnings
        if found:
            self.console.print(shown.warnings(text, found), "")
        cluster = None
        if options["cluster"] is not None:
            # Before there is anything to wait for.
            cluster = clusters.named(options["cluster"])
        user, _ = User.objects.get_or_create(username=USER, defaults={"is_active": False})
        made = previews.start(text, namespaces, user, f"{USER} {time.time_ns()}", tag)
        try:
            self._wait(made, options["wait"])
            self._show(made, tag, cluster, options["nodes"], options["out"])
        finally:
            previews.cancel(made.uuid)

    def _wait(self, preview: Preview, seconds: float) -> None:
        """Raises CommandError when it fails or takes longer."""
        end = time.monotonic() + seconds
        columns = (TextColumn("evaluating"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=self.console, transient=True) as bar:
            task = bar.add_task("")
            while True:
                progress = previews.progress([preview.uuid])[preview.uuid]
                done = progress.partitions - progress.pending
                bar.update(task, total=progress.partitions, completed=done)
                if progress.is_over:
                    break
                if time.monotonic() > end:
                    raise CommandError(
                        f"{progress.pending} of {progress.partitions} partitions are not evaluated"
                        f" after {seconds:g} s: is a worker running?"
                    )
                time.sleep(POLL_SECONDS)
        if progress.state == "failed":
            raise CommandError(f"the definition failed: {progress.failure}")

    def _show(
        self, preview: Preview, tag: str | None, cluster: Cluster | None, most: int, with_out: bool
    ) -> None:
        found = previews.Membership(preview, None if cluster is None else cluster.id)
        total = found.counts()
        self.console.print(shown.counts(total, found.clusters(), tag))
        parts: list[tuple[previews.Change, str, int]] = [("members", "nodes", total.nodes)]
        if tag is not None:
            parts = [
                ("added", f"added to {tag}", total.added),
                ("removed", f"removed from {tag}", total.removed),
            ]
        if with_out:
            parts.append(("out", "out", total.evaluated_nodes - total.nodes))
        for change, title, count in parts:
            if count and most > 0:
                self.console.print("", shown.nodes(title, found.page(change, -1, most), count))


def _definitions(
    options: dict[str, Any], namespaces: dict[str, str]
) -> list[tuple[str | None, str, dict[str, str]]]:
    """(tag's name, text, namespaces) of the one given, or of the tags named, or of all."""
    if options["definition"] is not None:
        if options["tags"]:
            raise CommandError("name TAGs, or give a --definition")
        return [(None, options["definition"], namespaces)]
    rows = Tag.objects.select_related("expression", "pending_expression")
    if options["tags"]:
        rows = rows.filter(name__in=options["tags"])
        missing = set(options["tags"]) - {tag.name for tag in rows}
        if missing:
            raise CommandError(f"there is no tag {min(missing)!r}")
    found = [(tag.name, tag.pending_expression or tag.expression) for tag in rows]
    return [(name, item.text, item.namespaces) for name, item in found if item is not None]


def _pair(text: str) -> tuple[str, str]:
    prefix, is_pair, uri = text.partition("=")
    if not is_pair:
        raise CommandError(f"--namespace {text!r}: write PREFIX=URI")
    return prefix, uri
