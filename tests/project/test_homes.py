"""What has one home: which revs matches count as, what is live, SQL, the queue and its policy."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUERY = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"--.*")
# They change what the view `effective_match` is made of, under the locks that they name, or lock it
# for those that do.
WRITERS = {
    *("apply_matches", "force_matches", "restore_matches", "invalidate_matches"),
    "stored_members",
}


def queries() -> dict[str, str]:
    """By name, without comments."""
    files = (ROOT / "src" / "tagmill").glob("*/queries.sql")
    return {
        name: COMMENT.sub("", text)
        for file in files
        for name, text in QUERY.findall(file.read_text())
    }


def test_every_query_says_what_it_is_for() -> None:
    files = (ROOT / "src" / "tagmill").glob("*/queries.sql")
    texts = [found for file in files for found in QUERY.findall(file.read_text())]
    assert [name for name, text in texts if not text.startswith("-- ")] == []


def modules(room: str) -> list[Path]:
    return [path for path in (ROOT / room).rglob("*.py") if "migrations" not in path.parts]


def test_only_the_view_says_which_rev_a_match_counts_as() -> None:
    raw = re.compile(r"\bkept_rev\b")
    table = re.compile(r"\b(?:FROM|JOIN) match (?:AS )?(\w+)\b")
    found = set()
    for name, text in queries().items():
        aliases = {"match", *table.findall(text)}
        if raw.search(text) or any(re.search(rf"\b{alias}\.rev\b", text) for alias in aliases):
            found.add(name)
    assert found == WRITERS
    computing = [path for path in modules("src") + modules("api") if raw.search(path.read_text())]
    assert [path.name for path in computing] == ["models.py"]


def test_only_the_view_says_what_is_live() -> None:
    """Whoever asks what refers to an expression, to keep it, does not ask whether it failed."""
    found = {
        name for name, text in queries().items() if "preview_until" in text and "failed_at" in text
    }
    assert found == set()


@pytest.mark.parametrize("path", modules("api"), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_api_runs_no_sql(path: Path) -> None:
    assert not re.search(r"\.cursor\(|\bRawSQL\b|\.raw\(|\bSELECT\b", path.read_text())


def test_only_the_queue_touches_procrastinate() -> None:
    importing = re.compile(r"^\s*(?:from|import) procrastinate\b", re.M)
    found = [
        path.name for path in modules("src") + modules("api") if importing.search(path.read_text())
    ]
    assert found == ["queue.py"]


def test_who_is_leased_how_much_is_decided_without_the_database() -> None:
    """`python -S`: nothing but the standard library can be imported."""
    code = "import runpy, sys; runpy.run_path(sys.argv[1])"
    policy = ROOT / "src" / "tagmill" / "work" / "policy.py"
    subprocess.run([sys.executable, "-I", "-S", "-c", code, policy], check=True, timeout=30)


def test_only_manage_py_and_the_tests_say_where_our_packages_are() -> None:
    """Both read it in pyproject.toml; other processes inherit it."""
    sets = re.compile(r"sys\.path(?:\[|\.insert|\.append)|\[?\"PYTHONPATH\"\]? *[=:]")
    rooms = ("src", "workers", "api", "fixtures", "loadtest", "tests")
    files = [ROOT / "manage.py", *(path for room in rooms for path in (ROOT / room).rglob("*.py"))]
    found = [path.relative_to(ROOT) for path in files if sets.search(path.read_text())]
    assert [str(path) for path in found] == ["manage.py", "tests/conftest.py"]
    assert "src:workers" not in (ROOT / "Makefile").read_text()
