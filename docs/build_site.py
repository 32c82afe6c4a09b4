#!/usr/bin/env python3
"""Gathers the pages of the site in a folder laid out as the repository, so that links stay as they
are, and writes those that are generated: commands, operations of the API, lists of folders."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "kernel/README.md")
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
METHODS = ("get", "post", "put", "patch", "delete")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="is made anew")
    gather(parser.parse_args().folder.resolve())


def gather(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for page in pages():
        copy(page, folder)
    write(folder / "reference" / "commands.md", commands())
    write(folder / "reference" / "operations.md", operations())


def pages() -> list[Path]:
    """Relative to the repository."""
    found = [path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md")]
    return sorted([*map(Path, PAGES), *found])


def copy(page: Path, folder: Path) -> None:
    """The page, and whatever else it links to."""

    def led(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        if "://" in target:
            return match[0]
        # Not resolved: some of what is linked to is a symbolic link itself.
        place = Path(os.path.normpath(page.parent / target))
        there = ROOT / place
        if there.is_dir():
            if not (there / "README.md").exists():
                write(folder / place / "README.md", listing(place))
            target = f"{target.rstrip('/')}/README.md"
        elif place not in pages():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(there, folder / place)
        return f"]({target}{anchor})"

    write(folder / page, LINK.sub(led, (ROOT / page).read_text()))


def listing(place: Path) -> str:
    """What is in a folder: pages by their titles."""
    lines = [f"# {place.name.capitalize()}", ""]
    for path in sorted((ROOT / place).iterdir()):
        if path.suffix == ".md":
            title = path.read_text().partition("\n")[0].removeprefix("# ")
            lines.append(f"- [{title}]({path.name})")
        else:
            lines.append(f"- `{place / path.name}`")
    return "\n".join([*lines, ""])


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def commands() -> str:
    """All of `manage.py` that is Tagmill's own, with what each says of itself."""
    from django.core.management import get_commands, load_command_class

    lines = [
        "# Commands",
        "",
        "`manage.py NAME` in a checkout, `tagmill NAME` where it is installed.",
    ]
    for name, app in sorted(get_commands().items()):
        if not app.startswith(("api", "tagmill", "fixtures", "loadtest")):
            continue
        parser = load_command_class(app, name).create_parser("manage.py", name)
        for title, one in [(name, parser), *subcommands(name, parser)]:
            lines += ["", f"## {title}", "", "```", shown(one), "```"]
    return "\n".join([*lines, ""])


def subcommands(
    name: str, parser: argparse.ArgumentParser
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub, one in action.choices.items():
                yield f"{name} {sub}", one


def shown(parser: argparse.ArgumentParser) -> str:
    """Without the options that Django gives to every command."""
    parser.formatter_class = argparse.HelpFormatter
    common = {"--version", "-v", "--settings", "--pythonpath", "--traceback", "--no-color",
              "--force-color", "--skip-checks"}  # fmt: skip
    for action in parser._actions:
        if common & set(action.option_strings):
            action.help = argparse.SUPPRESS
    return parser.format_help().strip()


def operations() -> str:
    """Each address of the API and what it does, as its OpenAPI description says."""
    from drf_spectacular.generators import SchemaGenerator

    schema: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    lines = [
        "# Operations",
        "",
        "`/api/schema/` of a running server has all of it as OpenAPI, `/api/docs/` to try it.",
        "",
        "| address | method | what it does |",
        "|---|---|---|",
    ]
    for path, methods in sorted(schema["paths"].items()):
        for method in METHODS:
            if method in methods:
                said = methods[method].get("summary") or methods[method].get("description", "")
                first = " ".join(said.split()).partition(". ")[0].replace("|", "\\|")
                lines.append(f"| `{path}` | {method.upper()} | {first} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "workers")]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tagmill.settings")
    os.environ.setdefault("COLUMNS", "100")
    import django

    django.setup()
    main()
