"""The tutorial's commands do what it says."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from loadtest.rig.stack import Stack
from tagmill.program import ROOT
from tests.support.workers import a_worker, work

PAGE = (ROOT / "docs" / "tutorial.md").read_text()
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# What the machine has, where there is no lshw.
LSHW = 'lshw() { printf \'<list>\\n<node class="display"/>\\n<node class="disk"/>\\n</list>\\n\'; }'
SECONDS = 30


def is_shown(expected: Any, found: Any) -> bool:
    """Whether what the page shows is there; what it leaves out may be anything."""
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(
            key in found and is_shown(value, found[key]) for key, value in expected.items()
        )
    if isinstance(expected, list):
        pairs = zip(expected, found, strict=False)
        return len(found) >= len(expected) and all(is_shown(*pair) for pair in pairs)
    return expected in ("...", found)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_every_command_answers_as_it_is_said(stack: Stack, tmp_path: Path) -> None:
    (command, *_), *_ = [text.splitlines() for kind, text in BLOCK.findall(PAGE) if not kind]
    said = io.StringIO()
    call_command(*command.removeprefix("manage.py ").split(), stdout=said)
    environment = {**os.environ, "URL": stack.url, "TOKEN": said.getvalue().split()[-1]}
    worker, answer, count = a_worker(), "", 0
    for kind, text in BLOCK.findall(PAGE):
        if kind == "bash":
            # What a worker does meanwhile.
            work(worker)
            ended = subprocess.run(
                ["bash", "-e", "-c", f"{LSHW}\n{text}"],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=True,
            )
            answer, count = ended.stdout, count + 1
        elif kind == "json":
            assert is_shown(json.loads(text), json.loads(answer)), (text, answer)
    assert count > 10
    assert answer == "" or "error" not in answer
