"""What the start of a process costs: the tests, and each command, pay it again and again."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys

from django.db.migrations.loader import MigrationLoader

from api.server import health
from tagmill import program
from tagmill_wire import collector
from tests.support.sql import database_url

START = """
import gc, json, sys
import tagmill_command
before = gc.get_stats()[-1]["collections"]
sys.stdout = sys.stderr
assert tagmill_command.main(["manage.py", "settings"]) == 0
from api.server import app, health
assert health.unapplied_migrations() == []
after = gc.get_stats()[-1]["collections"]
print(json.dumps({"collections": after - before, "modules": sorted(sys.modules)}),
      file=sys.__stdout__)
"""
# What only the benches need, or a check of the API's description.
NEEDLESS = {"jsonschema", "matplotlib", "numpy", "simpy"}


def test_a_start_imports_nothing_needless_and_never_goes_through_all_it_has_made(db: None) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", START],
        cwd=program.ROOT,
        env={**os.environ, "DATABASE_URL": database_url()},
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert not NEEDLESS & set(found["modules"])
    # Where none is missing, their names are enough.
    assert not [name for name in found["modules"] if ".migrations.0" in name]
    assert found["collections"] == 0


def test_the_files_name_the_migrations_that_django_would_import() -> None:
    assert health.migrations() == set(MigrationLoader(None).disk_migrations)


def test_what_runs_on_collects_as_python_does() -> None:
    collector.starting()
    try:
        assert gc.get_threshold()[0] == collector.MAX_YOUNG
    finally:
        collector.started()
    assert gc.get_threshold() == collector.DEFAULT
    assert gc.get_freeze_count() > 0
