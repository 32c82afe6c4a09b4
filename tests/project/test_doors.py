"""What a package offers is listed where it is entered: `__all__` of its `__init__.py`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("src", "workers", "api", "fixtures", "loadtest")
ROOMS = ("audit", "fleet", "matches", "work", "tags", "flows")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] in ("src", "workers"):
        parts = parts[1:]
    return ".".join(parts).removesuffix(".__init__")


FILES = {module_name(path): path for top in SOURCES for path in (ROOT / top).rglob("*.py")}
TREES = {module: ast.parse(path.read_text()) for module, path in FILES.items()}


def public_names(tree: ast.Module) -> list[str] | None:
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return list(ast.literal_eval(value))
    return None


DOORS = {
    module: names
    for module, tree in TREES.items()
    if FILES[module].name == "__init__.py" and (names := public_names(tree)) is not None
}


def door_of(module: str) -> str | None:
    """The innermost package with a list that the module is, or is in."""
    return max(
        (door for door in DOORS if module == door or module.startswith(f"{door}.")),
        key=len,
        default=None,
    )


def imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(module, name) of each imported name, and (module, "") of each module imported whole."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def test_every_room_and_shared_package_has_a_door() -> None:
    expected = {f"tagmill.{room}" for room in ROOMS} | {
        "tagmill_wire",
        "tagmill_expressions",
        "tagmill_expressions.lint",
        "tagmill_expressions.explain",
        "tagmill_worker",
        "api.server",
        "api.rest",
        "fixtures",
        *(f"loadtest.{room}" for room in ("benches", "planner", "references", "report", "rig")),
    }
    assert expected <= DOORS.keys()
    for door in DOORS:
        assert ast.get_docstring(TREES[door]), door


@pytest.mark.parametrize("door", DOORS)
def test_every_public_name_is_there_and_the_list_is_sorted(door: str) -> None:
    assert DOORS[door] == sorted(set(DOORS[door]))
    for name in DOORS[door]:
        assert hasattr(import_module(door), name) or find_spec(f"{door}.{name}"), name


@pytest.mark.parametrize("door", DOORS)
def test_nobody_outside_imports_what_a_package_does_not_offer(door: str) -> None:
    for module, tree in TREES.items():
        if module == door or module.startswith(f"{door}."):
            continue
        for source, name in imports(tree):
            if door_of(source) != door:
                continue
            below = source.removeprefix(door).lstrip(".").split(".")[0]
            assert (below or name) in DOORS[door], f"{module} imports {source}.{name}"
            assert not name.startswith("_") or name == "__version__", f"{module}: {source}.{name}"
