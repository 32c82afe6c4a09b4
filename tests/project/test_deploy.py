"""What is deployed names settings, options, metrics and pages that there are."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tagmill.config import Config
from tagmill.program import ROOT
from tagmill_wire import __version__

DEPLOY = ROOT / "deploy"
FILES = [
    path
    for path in sorted(DEPLOY.rglob("*"))
    if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
]
spec = importlib.util.spec_from_file_location("sbom", DEPLOY / "sbom.py")
assert spec is not None and spec.loader is not None
sbom = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sbom)
VARIABLE = re.compile(r"\b(?:TAGMILL|DATABASE)_[A-Z_]+\b")
# compose.yaml has variables of its own.
OWN = {"TAGMILL_HOST", "TAGMILL_VERSION"}
METRIC = re.compile(r"\b(?:tagmill|process)_[a-z_]+\b")
# Prometheus adds them to the names of histograms.
PARTS = re.compile(r"_(?:bucket|sum|count)$")


def settings() -> set[str]:
    server = {f"TAGMILL_{name.upper()}" for name in Config.model_fields} | {"DATABASE_URL"}
    worker = set(re.findall(r"`(TAGMILL_\w+)`", (ROOT / "docs" / "worker.md").read_text()))
    return server | worker | OWN


def metrics() -> set[str]:
    pages = ("metrics.md", "worker.md")
    text = "".join((ROOT / "docs" / page).read_text() for page in pages)
    listed = set(re.findall(r"^\| `(tagmill_\w+)` \|", text, re.M))
    return listed | {"process_cpu_seconds_total", "process_resident_memory_bytes"}


def named_metrics(expression: str) -> set[str]:
    return {PARTS.sub("", name) for name in METRIC.findall(expression)}


def alerts() -> list[dict[str, Any]]:
    found = yaml.safe_load((DEPLOY / "watch" / "alerts.yml").read_text())
    return [rule for group in found["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_variable_is_a_setting(path: Path) -> None:
    assert set(VARIABLE.findall(path.read_text())) <= settings()


def test_the_units_name_commands_and_options_that_there_are() -> None:
    server = (DEPLOY / "systemd" / "tagmill-server.service").read_text()
    worker = (DEPLOY / "systemd" / "tagmill-worker@.service").read_text()
    assert "ExecStart=/opt/tagmill/bin/tagmill serve --processes auto\n" in server
    (options,) = re.findall(r"^ExecStart=\S+/tagmill-worker (.*)$", worker, re.M)
    listed = (ROOT / "docs" / "worker.md").read_text()
    assert all(f"`{option}`" in listed for option in re.findall(r"--[\w-]+", options))


def test_both_units_are_as_closed_as_each_other() -> None:
    """What follows the user's own lines is the same, but for what the comments say."""
    closed = []
    for name in ("tagmill-server.service", "tagmill-worker@.service"):
        text = (DEPLOY / "systemd" / name).read_text()
        lines = text[text.index("ProtectSystem=strict") :].splitlines()
        closed.append([line for line in lines if not line.startswith("#")])
    assert closed[0] == closed[1]
    assert {"NoNewPrivileges=yes", "CapabilityBoundingSet="} <= set(closed[0])


def test_the_chart_has_the_version_of_the_program() -> None:
    chart = yaml.safe_load((DEPLOY / "chart" / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
    compose = (DEPLOY / "compose" / "compose.yaml").read_text()
    assert set(re.findall(r"TAGMILL_VERSION:-([\d.]+)", compose)) == {__version__}


def test_services_of_ours_run_without_rights_on_a_root_that_is_only_read() -> None:
    services = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())["services"]
    for name, service in services.items():
        assert "no-new-privileges:true" in service["security_opt"], name
        if name != "postgres":
            assert service["read_only"] and service["cap_drop"] == ["ALL"], name
    assert services["worker"]["deploy"]["replicas"] == 3
    docker = (DEPLOY / "Dockerfile").read_text()
    for target in ("worker", "server"):
        stage = docker.split(f"FROM base AS {target}\n")[1].split("FROM ")[0]
        assert "USER 10001:10001" in stage and "HEALTHCHECK" in stage and "RUN" not in stage


def test_alerts_and_panels_ask_for_metrics_that_there_are() -> None:
    dashboard = json.loads((DEPLOY / "watch" / "dashboard.json").read_text())
    asked = [rule["expr"] for rule in alerts()]
    asked += [
        target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())
    ]
    assert len(asked) > 40
    known = metrics()
    for expression in asked:
        assert named_metrics(expression) <= known, expression
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


def test_every_alert_has_an_entry_in_the_runbook_and_a_test() -> None:
    names = [rule["alert"] for rule in alerts()]
    entries = re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.M)
    assert entries == names
    tested = yaml.safe_load((DEPLOY / "watch" / "alerts_test.yml").read_text())["tests"]
    assert [case["name"] for case in tested] == names
    for rule in alerts():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"]


def test_the_bills_of_materials_name_what_each_product_is_made_of() -> None:
    made = {
        name: sbom.installed([one for file in files for one in sbom.pinned(ROOT / file)])
        for name, files in sbom.PRODUCTS.items()
    }
    assert {"django", "psycopg-binary", "twisted", "lxml", "sqlparse"} <= made["server"].keys()
    assert {"twisted", "lxml", "zope-interface"} <= made["worker"].keys()
    assert not {"django", "psycopg", "pytest"} & made["worker"].keys()
    assert "pytest" not in made["server"]
    crates = sbom.locked(ROOT / "kernel" / "Cargo.lock")
    pyo3 = next(crate for crate in crates.values() if crate["name"] == "pyo3")
    assert pyo3["purl"].startswith("pkg:cargo/pyo3@") and len(pyo3["hashes"][0]["content"]) == 64
    written = sbom.document("tagmill-kernel", "1", crates)
    assert written == sbom.document("tagmill-kernel", "1", crates)
    assert written["components"][0]["bom-ref"] and written["serialNumber"].startswith("urn:uuid:")
