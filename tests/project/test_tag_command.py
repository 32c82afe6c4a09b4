"""`manage.py tag`: readable answers on a terminal, and the same as JSON."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from io import StringIO

import orjson
import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from tagmill.fleet import clusters
from tagmill.fleet.models import Partition
from tagmill.tags import tags
from tagmill.tags.models import Preview
from tagmill_expressions import documents
from tagmill_expressions.vocabulary import Vocabulary
from tests.support.fleet import GPU, HAS_GPU, put
from tests.support.workers import a_worker, work
from tests.tags.test_vocabulary import learn_parts, packed


def tag(*arguments: str, color: bool = False) -> str:
    out = StringIO()
    options = ["--force-color"] if color else []
    call_command("tag", *options, *arguments, stdout=out)
    return out.getvalue()


@pytest.fixture
def fleet(db: None) -> None:
    clusters.create("north")
    put("a", "b", cluster="north")
    put("c", xml=b"<list><node id='core'/></list>", cluster="north")
    partition = Partition.objects.get()
    words = Vocabulary.of([documents.compose({"lshw": GPU.decode()})])
    learn_parts(partition, partition.rev, -1, [packed(words)])


def test_a_warning_stands_below_its_place(fleet: None) -> None:
    shown = tag("lint", "--definition", "//node[@class=display]").splitlines()
    assert shown[0] == "  //node[@class=display]"
    assert shown[1] == "                ^^^^^^^"
    assert shown[2].startswith("  bare_name_for_string: ")
    assert shown[3] == "  write: //node[@class='display']"
    assert shown[-1] == "1 definition, 1 with warnings."


def test_long_definitions_are_not_cut(fleet: None) -> None:
    long = " or ".join(f"//node[@id='number-{n}']" for n in range(20))
    assert f"  {long}\n" in tag("lint", "-d", f"{long}")


def test_colour_is_for_terminals(fleet: None) -> None:
    assert "\x1b[" not in tag("lint", "-d", "//nod")
    assert "\x1b[" in tag("lint", "-d", "//nod", color=True)


def test_without_a_definition_all_tags_are_linted(fleet: None) -> None:
    tags.create("good", definition="//node[@id='core']")
    tags.create("bad", definition="//nod")
    tags.create("manual")
    shown = tag("lint")
    assert "bad\n  //nod\n" in shown
    assert "good" not in shown
    assert shown.endswith("2 definitions, 1 with warnings.\n")
    lines = [orjson.loads(line) for line in tag("lint", "bad", "--json").splitlines()]
    assert [(line["tag"], line["warnings"][0]["code"]) for line in lines] == [
        ("bad", "unknown_name")
    ]
    with pytest.raises(CommandError, match="no tag 'none'"):
        tag("lint", "none")


def test_strict_fails_when_there_are_warnings(fleet: None) -> None:
    tags.create("good", definition="//node[@id='core']")
    tags.create("bad", definition="//nod")
    with pytest.raises(CommandError, match="1 of 2 definitions have warnings"):
        tag("lint", "--strict")
    with pytest.raises(CommandError, match="have warnings"):
        tag("lint", "bad", "--strict", "--json")
    assert tag("lint", "good", "--strict") == "1 definition, none with warnings.\n"


def test_typographic_quotes_are_rewritten(fleet: None) -> None:
    with pytest.raises(CommandError) as found:
        tag("lint", "-d", "//node[@class=“display”]")
    assert 'typographic quote: write " around text' in str(found.value)
    assert str(found.value).endswith('\nwrite: //node[@class="display"]')


def test_it_says_when_names_were_not_looked_up(db: None) -> None:
    assert "not looked up" in tag("lint", "-d", "//nosuch")


@pytest.mark.parametrize("call", [["lint"], ["explain", "--node", "a"], ["preview"]])
def test_a_syntax_error_has_a_caret(fleet: None, call: list[str]) -> None:
    with pytest.raises(CommandError) as found:
        tag(*call, "-d", "//node[")
    assert "\n//node[\n       ^ expected" in str(found.value)


def test_an_explanation_is_a_tree(fleet: None) -> None:
    tags.create("gpu", definition=HAS_GPU)
    work(a_worker())
    shown = tag("explain", "gpu", "--node", "a")
    assert shown.startswith("✔ a (")
    assert "/list/node/node" in shown
    assert "stored: in (fresh" in shown
    shown = tag("explain", "-d", "//node[@id='cor'] and not(//x)", "--node", "c")
    assert "├── ✘ //node[@id='cor']" in shown
    assert "ids that exist here: core" in shown
    assert "└── ✔ not(//x)" in shown
    assert "stored: nothing" in shown
    assert orjson.loads(tag("explain", "gpu", "--node", "a", "--json"))["verdict"] is True
    with pytest.raises(CommandError, match="no node"):
        tag("explain", "gpu", "--node", "none")
    with pytest.raises(CommandError, match="TAG"):
        tag("explain", "--node", "a")


@pytest.fixture
def working(no_jobs: None) -> Iterator[Callable[[], None]]:
    """Works in a thread of its own, from when it is called until the test ends."""
    is_over = threading.Event()

    def run() -> None:
        worker = a_worker(name="previews")
        while not is_over.wait(0.02):
            work(worker)
        connection.close()

    thread = threading.Thread(target=run)
    yield thread.start
    is_over.set()
    thread.join()


@pytest.mark.django_db(transaction=True)
def test_a_preview_shows_what_would_change(working: Callable[[], None]) -> None:
    clusters.create("north")
    clusters.create("south")
    put("a", "b", cluster="north")
    put("c", xml=b"<list><node id='core'/></list>", cluster="south")
    tags.create("gpu", definition=HAS_GPU)
    work(a_worker())
    working()
    shown = tag("preview", "gpu", "-d", "//node[@id='core'][not(node)]", "--nodes", "1")
    rows = [line.split() for line in shown.splitlines()]
    assert ["north", "0", "2", "0.0%", "+0", "-2"] in rows
    assert ["south", "1", "1", "100.0%", "+1", "-0"] in rows
    assert ["all", "1", "3", "33.3%", "+1", "-2"] in rows
    assert "added to gpu" in shown
    assert "and 1 more" in shown
    shown = tag("preview", "-d", "//node[@id='core'][not(node)]", "--cluster", "north", "--out")
    rows = [line.split() for line in shown.splitlines()]
    assert ["north", "0", "2", "0.0%"] in rows
    assert "south" not in shown
    assert shown.split("out\n")[1].split() == ["a", "b"]
    with pytest.raises(CommandError, match="no cluster 'none'"):
        tag("preview", "-d", "//node", "--cluster", "none")
    assert not Preview.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_preview_that_nobody_evaluates_says_so(no_jobs: None) -> None:
    clusters.create("north")
    put("a", cluster="north")
    with pytest.raises(CommandError, match="is a worker running"):
        tag("preview", "-d", "//node", "--wait", "0")
    assert not Preview.objects.exists()


def test_a_hit_says_what_it_is_and_a_pipe_gets_whole_lines(fleet: None) -> None:
    name = "x" * 150
    put(
        "d",
        xml=f"<list><node id='core' class='bus'><product>{name}</product></node></list>".encode(),
    )
    shown = tag("explain", "--node", "d", "-d", "//node")
    assert f"/list/node:1  id=core class=bus product={name}\n" in shown


def test_a_terminal_gets_lines_that_are_wrapped_not_cut(
    fleet: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    name = "".join(chr(ord("a") + n % 26) for n in range(150))
    put("d", xml=f"<list><node id='core'><product>{name}</product></node></list>".encode())
    shown = tag("explain", "--node", "d", "-d", "//node", color=True)
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert max(map(len, text.splitlines())) <= 60
    assert name in re.sub(r"[^a-z]", "", text)
