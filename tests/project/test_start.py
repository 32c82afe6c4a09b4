"""What the start of a process costs: the tests, and each command, pay it again and again."""

from __future__ import annotations

import json
import subprocess
import sys

from tagmill import program
from tagmill_wire import collector

START = """
import gc, json, sys
import tagmill_command
before = gc.get_stats()[-1]["collections"]
sys.stdout = sys.stderr
assert tagmill_command.main(["manage.py", "settings"]) == 0
sys.stdout = sys.__stdout__
after = gc.get_stats()[-1]["collections"]
print(json.dumps({"collections": after - before, "modules": sorted(sys.modules)}))
"""
# What only the benches need, or a check of the API's description.
NEEDLESS = {"matplotlib", "simpy", "numpy", "jsonschema"}


def test_a_start_imports_nothing_needless_and_never_goes_through_all_it_has_made() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", START],
        cwd=program.ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    )
    found = json.loads(ran.stdout.splitlines()[-1])
    assert not NEEDLESS & set(found["modules"])
    assert found["collections"] == 0


def test_what_runs_on_collects_as_python_does() -> None:
    import gc

    collector.starting()
    try:
        assert gc.get_threshold()[0] == collector.MAX_YOUNG
    finally:
        collector.started()
    assert gc.get_threshold() == collector.DEFAULT
    assert gc.get_freeze_count() > 0
