"""Every definition of docs/cookbook.md, on documents that have the property and that have not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tagmill_expressions import documents, evaluation
from tests.expressions.test_lint_fleet import warnings

PAGE = Path(__file__).parents[2].joinpath("docs/cookbook.md").read_text()
RECIPES = dict(re.findall(r"^## (.+?)\n.*?```xpath\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))

GIB = 1024**3


def memory(total: int | None, *banks: int) -> str:
    size = "" if total is None else f'<size units="bytes">{total * GIB}</size>'
    rows = "".join(
        f'<node id="bank:{number}" class="memory">'
        + (f'<size units="bytes">{bank * GIB}</size></node>' if bank else "</node>")
        for number, bank in enumerate(banks)
    )
    cache = '<node id="cache:0" class="memory"><size units="bytes">68719476736</size></node>'
    return f'<node id="memory" class="memory">{size}{rows}</node>{cache}'


def display(vendor: str) -> str:
    return f'<node id="display" class="display"><vendor>{vendor}</vendor></node>'


def cpu(cores: int, attributes: str = "", capability: str = "lm") -> str:
    return (
        f'<node id="cpu" class="processor"{attributes}><configuration>'
        f'<setting id="cores" value="{cores}"/></configuration>'
        f'<capabilities><capability id="{capability}"/></capabilities></node>'
    )


def driver(name: str) -> str:
    setting = f'<configuration><setting id="driver" value="{name}"/></configuration>'
    return f'<node id="storage" class="storage">{setting}</node>'


def system(vendor: str, product: str, inside: str = "") -> str:
    named = f"<vendor>{vendor}</vendor><product>{product}</product>{inside}"
    return f'<node id="host" class="system">{named}</node>'


BMC = display("ASPEED Technology, Inc.") + display("Matrox Electronics Systems Ltd.")
EMPTY = cpu(64, ' disabled="true"')
VIRTUAL = [
    system("QEMU", "Standard PC (i440FX + PIIX, 1996)"),
    system("VMware, Inc.", "VMware Virtual Platform"),
    system("Microsoft Corporation", "Virtual Machine"),
    system("Amazon EC2", "m5.large", cpu(2, capability="hypervisor")),
]
PHYSICAL = [
    system("HP", "ProLiant DL360 Gen9", cpu(2)),
    system("Microsoft Corporation", "Surface"),
    system("Amazon EC2", "m5.metal", cpu(48)),
]
# What has it, and what has not.
CASES: dict[str, tuple[list[str], list[str]]] = {
    "Memory of at least 64 GiB": (
        [memory(64), memory(None, 32, 0, 32), memory(128, 64, 64)],
        [memory(63), memory(None, 32, 0, 16), memory(None), ""],
    ),
    "A GPU": (
        [BMC + display("NVIDIA Corporation"), display("Advanced Micro Devices, Inc. [AMD/ATI]")],
        [BMC, display("Cirrus Logic"), display("Red Hat, Inc."), ""],
    ),
    "An NVIDIA GPU": ([BMC + display("NVIDIA Corporation")], [BMC, "<vendor>NVIDIA</vendor>"]),
    "An NVMe disk": (
        [driver("nvme"), '<node class="disk"><logicalname>/dev/nvme0n1</logicalname></node>'],
        [driver("ahci"), '<node class="disk"><logicalname>/dev/sda</logicalname></node>'],
    ),
    "Two CPUs or more": ([cpu(8) + cpu(8), cpu(8) * 2 + EMPTY], [cpu(8) + EMPTY, cpu(8), ""]),
    "At least 32 cores": ([cpu(16) * 2, cpu(32) + EMPTY], [cpu(16) + EMPTY, ""]),
    "A virtual machine": (VIRTUAL, [*PHYSICAL, ""]),
    "A physical machine": (PHYSICAL, [*VIRTUAL, ""]),
}


def test_each_recipe_has_documents() -> None:
    assert RECIPES.keys() == CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_a_recipe_is_true_of_what_has_the_property_and_of_nothing_else(name: str) -> None:
    compiled = evaluation.compile(RECIPES[name].strip())

    def matches(inside: str) -> bool:
        return compiled.matches(documents.compose({"lshw": f"<list>{inside}</list>"}))

    has, has_not = CASES[name]
    assert [inside for inside in has if not matches(inside)] == []
    assert [inside for inside in has_not if matches(inside)] == []


@pytest.mark.parametrize("name", CASES)
def test_lint_sees_only_that_a_fleet_lacks_what_a_recipe_looks_for(name: str) -> None:
    assert {warning.code for warning in warnings(RECIPES[name].strip())} <= {"unknown_value"}
