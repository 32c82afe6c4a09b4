"""`make release-check`: the wheels of dist/ in an empty virtual environment, without compilers.

A server and a worker of the installed packages evaluate one tag of one node, as the programs that
an operator starts. DATABASE_URL names the database for it, an empty one; without it the embedded
PostgreSQL is installed as well. Only the standard library is needed here.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

START_SECONDS = 60.0
TAG_SECONDS = 30.0
STOP_SECONDS = 40.0
COMMAND_SECONDS = 300.0
# As the units and the images have it: a user without rights, a root that is only read but for /tmp.
LOCKED_USER = 10001
# prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN) is MemoryDenyWriteExecute; who is started inherits.
DENY_WRITE_EXECUTE = (
    "import ctypes, os, sys;"
    "assert ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) == 0;"
    "os.execv(sys.argv[1], sys.argv[1:])"
)
COMPILERS = ("cc", "gcc", "g++", "clang", "rustc", "cargo")
DOCUMENT = "<list><node id='check' class='system'><vendor>Example</vendor></node></list>"


class Failed(Exception):
    """What did not happen, and what was printed."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dist", type=Path, help="the folder with the three wheels")
    parser.add_argument("--keep", type=Path, help="a folder for the environment, which stays")
    parser.add_argument(
        "--locked",
        action="store_true",
        help="server and worker run as in deploy/: no rights, nothing written but /tmp, no memory"
        " that is written and executed (needs root, bwrap, and DATABASE_URL)",
    )
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        home = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            environment = installed(home, wheels(options.dist))
            prefix = locked(home, environment) if options.locked else []
            check(home, environment, prefix)
        except Failed as failure:
            print(f"release-check: {failure}", file=sys.stderr)
            return 1
    print("1 passed, 0 failed")
    return 0


def wheels(dist: Path) -> dict[str, Path]:
    """The newest wheel of each package, by its name."""
    found = {}
    for name in ("tagmill_worker", "tagmill_kernel", "tagmill"):
        files = sorted(dist.glob(f"{name}-*.whl"), key=lambda file: file.stat().st_mtime)
        if not files:
            raise Failed(f"{dist} has no wheel of {name}: run `make dist` (the kernel needs cargo)")
        found[name] = files[-1].resolve()
    return found


def installed(home: Path, files: dict[str, Path]) -> dict[str, str]:
    """The environment of what is installed: its programs and nothing else are in PATH."""
    venv.create(home / "venv", with_pip=True, clear=True)
    programs = home / "venv" / "bin"
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("PYTHON")},
        "PATH": str(programs),
        "TAGMILL_VAR": str(home / "var"),
    }
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    for compiler in COMPILERS:
        if shutil.which(compiler, path=environment["PATH"]):
            raise Failed(f"{compiler} is in PATH, which this check is meant to do without")
    extra = "" if environment.get("DATABASE_URL") else "[embedded]"
    requirements = [f"{file}{extra if name == 'tagmill' else ''}" for name, file in files.items()]
    pip = [programs / "python", "-m", "pip"]
    run([*pip, "install", "--quiet", "--only-binary", ":all:", *requirements], environment)
    run([*pip, "check"], environment)
    return environment


def locked(home: Path, environment: dict[str, str]) -> list[Path | str]:
    """What a program is started with to have no more than a unit gives it."""
    tools = {name: shutil.which(name) for name in ("setpriv", "bwrap")}
    if None in tools.values() or "DATABASE_URL" not in environment:
        raise Failed(f"--locked needs DATABASE_URL and setpriv and bwrap: {tools}")
    home.chmod(0o755)
    environment["TAGMILL_VAR"] = "/tmp/tagmill"  # noqa: S108 - one of its own
    ids = [f"--reuid={LOCKED_USER}", f"--regid={LOCKED_USER}", "--clear-groups"]
    rights = ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
    room = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]  # noqa: S108
    room += ["--ro-bind", str(home), str(home), "--unshare-ipc", "--die-with-parent", "--"]
    python = home / "venv" / "bin" / "python"
    return [
        *(str(tools["setpriv"]), *ids, *rights),
        *(str(tools["bwrap"]), *room),
        *(python, "-c", DENY_WRITE_EXECUTE),
    ]


def check(home: Path, environment: dict[str, str], prefix: list[Path | str]) -> None:
    tagmill = home / "venv" / "bin" / "tagmill"
    said = run([tagmill, "version"], environment)
    print(said.strip())
    run([tagmill, "migrate", "--verbosity", "0"], environment)
    token = run([tagmill, "create-token", "--user", "check", "--role", "admin"], environment)
    worker_token = run([tagmill, "worker-token", "check", "--all-clusters"], environment)
    listen = f"127.0.0.1:{free_port()}"
    client = Client(f"http://{listen}", token.strip())
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(
            process(
                [*prefix, tagmill, "serve", "--listen", listen, "--processes", "2"],
                environment,
                home / "server.log",
            )
        )
        wait(START_SECONDS, "the server is ready", client.is_ready, server)
        worker = stack.enter_context(
            process(
                [
                    *(*prefix, tagmill.parent / "tagmill-worker"),
                    *("--server", client.url, "--evaluator=kernel"),
                ],
                {**environment, "TAGMILL_WORKER_TOKEN": worker_token.strip(), "DATABASE_URL": ""},
                home / "worker.log",
            )
        )
        one_tag(client, worker)
        one_page(client)
        for running in (worker, server):
            ended(running)


def one_tag(client: Client, worker: Running) -> None:
    client.ask("POST", "/api/v1/clusters/", {"name": "check"})
    node = {"system_id": "n1", "cluster": "check", "probes": {"lshw": DOCUMENT}}
    client.ask("POST", "/api/v1/nodes/", {**node, "hostname": "n1"})
    client.ask("POST", "/api/v1/tags/", {"name": "mine", "definition": "//vendor[.='Example']"})
    wait(
        TAG_SECONDS,
        "the worker evaluates the tag",
        lambda: client.ask("GET", "/api/v1/tags/mine")["state"] == "ready",
        worker,
    )
    found = [node["system_id"] for node in client.ask("GET", "/api/v1/tags/mine/nodes")["results"]]
    if found != ["n1"]:
        raise Failed(f"the tag has {found} instead of the one node")
    print("A node has its tag.")


def one_page(client: Client) -> None:
    """Templates and static files are in the wheel: those of the admin and our own."""
    for path in ("/admin/login/", "/static/admin/css/base.css", "/static/api/tag_form.js"):
        client.fetch(path)
    print("Pages and static files are served.")


class Client:
    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self._token = token

    def is_ready(self) -> bool:
        try:
            return bool(self.fetch("/readyz"))
        except (Failed, OSError):
            return False

    def fetch(self, path: str, method: str = "GET", body: object = None) -> bytes:
        headers = {"Authorization": f"Token {self._token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)  # noqa: S310 - ours
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - ours
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")
            raise Failed(f"{method} {path}: {error.code} {said[:500]}") from None

    def ask(self, method: str, path: str, body: object = None) -> Any:
        return json.loads(self.fetch(path, method, body))


class Running:
    """A process, and the file with what it prints."""

    def __init__(self, command: list[Path | str], environment: dict[str, str], log: Path) -> None:
        self.name = log.stem
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(  # noqa: S603 - our own programs
                command, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )

    def program(self) -> int:
        """Its pid; what it is locked in passes no signals on, and has one child, the program."""
        pid = self.process.pid
        if Path(f"/proc/{pid}/comm").read_text().strip() != "bwrap":
            return pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def last_words(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-10:])


@contextlib.contextmanager
def process(command: list[Path | str], environment: dict[str, str], log: Path) -> Iterator[Running]:
    running = Running(command, environment, log)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def ended(running: Running) -> None:
    """SIGTERM, as systemd and Kubernetes send it, ends it with code 0."""
    os.kill(running.program(), signal.SIGTERM)
    try:
        code = running.process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        raise Failed(f"{running.name} does not stop:\n{running.last_words()}") from None
    if code:
        raise Failed(f"{running.name} ended with {code}:\n{running.last_words()}")


def wait(seconds: float, what: str, happens: Any, running: Running) -> None:
    deadline = time.monotonic() + seconds
    while not happens():
        if running.process.poll() is not None or time.monotonic() > deadline:
            raise Failed(f"not within {seconds:g} s: {what}\n{running.last_words()}")
        time.sleep(0.1)


def run(command: list[Path | str], environment: dict[str, str]) -> str:
    found = subprocess.run(  # noqa: S603 - our own programs
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    if found.returncode:
        shown = " ".join(map(str, command[:4]))
        raise Failed(f"{shown} ended with {found.returncode}:\n{found.stderr[-2000:]}")
    return found.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
