from __future__ import annotations

from dataclasses import fields
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from tagmill_worker import settings
from tagmill_worker.command import main
from tagmill_worker.errors import BadSettings
from tagmill_worker.metrics import Metrics

PAGE = (Path(__file__).parents[2] / "docs" / "worker.md").read_text()


@pytest.mark.parametrize(
    ("text", "size"), [("10", 10), ("64MiB", 64 << 20), ("2 kB", 2000), ("1gib", 1 << 30)]
)
def test_sizes_take_units(text: str, size: int) -> None:
    assert settings.size(text) == size


def test_an_option_wins_over_its_variable() -> None:
    environment = {"TAGMILL_WORKER_NAME": "a", "TAGMILL_WORKER_TOKEN": "t"}
    assert settings.load([], environment).name == "a"
    assert settings.load(["--name", "b"], environment).name == "b"


def test_the_token_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("tmw_a_b\n")
    assert settings.load(["--token-file", str(tmp_path / "token")], {}).token == "tmw_a_b"


@pytest.mark.parametrize("is_built", [True, False])
def test_the_evaluator_is_chosen_by_what_is_built(
    is_built: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = ModuleSpec("tagmill_kernel", None) if is_built else None
    monkeypatch.setattr("tagmill_worker.evaluators.base.find_spec", lambda _: spec)

    def chosen(name: str) -> str:
        return settings.load(["--token", "t"], {"TAGMILL_EVALUATOR": name}).evaluator

    assert chosen("auto") == chosen("") == ("kernel" if is_built else "lxml")
    assert chosen("lxml") == "lxml"
    if is_built:
        assert chosen("kernel") == "kernel"
    else:
        with pytest.raises(BadSettings, match="make install"):
            chosen("kernel")


@pytest.mark.parametrize("tail", ["", "/", "/api/v1", "/api/v1/"])
def test_the_address_of_the_api_is_understood_as_the_servers(tail: str) -> None:
    given = settings.load(["--token", "t", "--server", f"http://tags:8080{tail}"], {})
    assert given.server == "http://tags:8080"


@pytest.mark.parametrize("url", ["http://tags/?a=1", "http://tags/#a", "http://me:secret@tags/"])
def test_an_address_that_says_more_than_a_server_has_is_refused(url: str) -> None:
    with pytest.raises(BadSettings, match="--server: must be a URL without") as caught:
        settings.load(["--token", "t", "--server", url], {})
    assert "secret" not in str(caught.value)


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(BadSettings) as caught:
        settings.load(["--server", "nowhere", "--prefetch", "much"], {})
    assert all(word in str(caught.value) for word in ("--server", "--prefetch", "--token"))


def test_a_bad_setting_ends_with_code_2(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--token", "t", "--max-partitions", "0"]) == 2
    assert "--max-partitions" in capfd.readouterr().err


def test_the_page_lists_every_option_with_its_default() -> None:
    for item in fields(settings.Settings):
        default = item.metadata["default"]
        shown = f"`{default}`" if default else ""
        row = f"| `{settings.flag(item)}` | `{settings.variable(item)}` | {shown} | "
        assert row + item.metadata["help"] + " |" in PAGE


def test_the_page_lists_every_metric() -> None:
    names = {
        sample.name.removesuffix("_created")
        for family in Metrics().registry.collect()
        for sample in family.samples
        if not sample.labels.get("le")
    }
    for family in Metrics().registry.collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        assert f"| `{name}` | {family.type} | " in PAGE, names
