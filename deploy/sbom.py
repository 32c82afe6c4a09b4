"""What server, worker and kernel are made of, as CycloneDX: `make sbom` writes one file for each.

The first two are read of the environment that runs this, from the pinned requirements on; the third
of the kernel's lock file, which knows no licences. Nothing is asked of a network.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import tomllib
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("requirements-tracing.txt", "requirements-oidc.txt")
PRODUCTS = {
    "server": ("requirements.txt", *EXTRAS),
    "worker": ("requirements-worker.txt", *EXTRAS[:1]),
}
MAX_LICENCE = 200
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "tagmill-sbom")

Component = dict[str, Any]


def pinned(file: Path) -> list[Requirement]:
    """The requirements of the file, and of those that it includes."""
    found: list[Requirement] = []
    for line in file.read_text().splitlines():
        text = line.partition(" #")[0].strip()
        if text.startswith("-r "):
            found += pinned(file.parent / text[3:].strip())
        elif text and not text.startswith(("#", "-")):
            found.append(Requirement(text))
    return found


def installed(wanted: list[Requirement]) -> dict[str, Component]:
    """They, and what they need, by name. Raises PackageNotFoundError."""
    found: dict[str, Component] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    while wanted:
        one = wanted.pop()
        name = re.sub(r"[-_.]+", "-", one.name).lower()
        extras = frozenset(one.extras)
        if (name, extras) in seen or (one.marker and not one.marker.evaluate({"extra": ""})):
            continue
        seen.add((name, extras))
        package = metadata.distribution(one.name)
        found[name] = _of_python(name, package)
        for text in package.requires or ():
            needed = Requirement(text)
            chosen = ("", *sorted(extras))
            if needed.marker is None or any(needed.marker.evaluate({"extra": e}) for e in chosen):
                needed.marker = None
                wanted.append(needed)
    return found


def _of_python(name: str, package: metadata.Distribution) -> Component:
    said = package.metadata
    licence = said.get("License-Expression") or said.get("License") or ""
    classified = [
        text.rpartition(" :: ")[2]
        for text in said.get_all("Classifier") or ()
        if text.startswith("License ::")
    ]
    if not licence or "\n" in licence or len(licence) > MAX_LICENCE:
        licence = " AND ".join(classified)
    made = _component(name, package.version, f"pkg:pypi/{name}@{package.version}")
    return made | ({"licenses": [{"license": {"name": licence}}]} if licence else {})


def locked(file: Path) -> dict[str, Component]:
    """What a Cargo.lock names, but for the crate itself."""
    found = {}
    for crate in tomllib.loads(file.read_text())["package"]:
        name, version = crate["name"], crate["version"]
        if "source" in crate:
            made = _component(name, version, f"pkg:cargo/{name}@{version}")
            digest = {"alg": "SHA-256", "content": crate["checksum"]}
            found[f"{name}-{version}"] = made | {"hashes": [digest]}
    return found


def _component(name: str, version: str, purl: str) -> Component:
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
    }


def document(product: str, version: str, components: dict[str, Component]) -> dict[str, Any]:
    """The same for the same components, whenever it is written."""
    listed = [components[name] for name in sorted(components)]
    number = uuid.uuid5(NAMESPACE, json.dumps([product, version, listed]))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{number}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": product,
                "name": product,
                "version": version,
            }
        },
        "components": listed,
    }


def main(directory: Path) -> None:
    sys.path.insert(0, str(ROOT))
    version = importlib.import_module("hatch_build").found_version()
    found = {
        name: installed([one for file in files for one in pinned(ROOT / file)])
        for name, files in PRODUCTS.items()
    }
    found["kernel"] = locked(ROOT / "kernel" / "Cargo.lock")
    directory.mkdir(parents=True, exist_ok=True)
    for name, components in found.items():
        file = directory / f"{name}.cdx.json"
        made = document(f"tagmill-{name}", version, components)
        file.write_text(json.dumps(made, indent=2) + "\n")
        print(f"{file}: {len(components)} components")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
