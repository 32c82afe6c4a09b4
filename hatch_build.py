"""Version and dependencies of the wheels `tagmill` and `tagmill-worker`, from one place each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).resolve().parent
# What is installed for a setting that names one, or for an evaluator.
CACHES = {"redis": ["redis"], "memcached": ["pymemcache"]}
STORES = {"s3": ["django-storages[s3]"]}


class Metadata(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        version = found_version()
        kernel = [f"tagmill-kernel=={version}"]
        tracing = pinned("requirements-tracing.txt")
        metadata["version"] = version
        if metadata["name"] == "tagmill-worker":
            metadata["dependencies"] = pinned("requirements-worker.txt")
            metadata["optional-dependencies"] = {"kernel": kernel, "tracing": tracing}
            return
        # The worker's wheel has the packages that server and worker share: both are of one version.
        metadata["dependencies"] = [f"tagmill-worker=={version}", *pinned("requirements.txt")]
        metadata["optional-dependencies"] = {
            "kernel": kernel,
            "embedded": pinned("requirements-embedded.txt"),
            "tracing": tracing,
            "oidc": pinned("requirements-oidc.txt"),
            **CACHES,
            **STORES,
        }


def found_version() -> str:
    """`tagmill_wire.__version__`, without importing it."""
    text = (ROOT / "src" / "tagmill_wire" / "__init__.py").read_text()
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.M)
    if found is None:
        raise ValueError("src/tagmill_wire/__init__.py has no __version__")
    return found.group(1)


def pinned(file: str) -> list[str]:
    """The requirements of a file itself, without those of the files that it includes."""
    lines = (ROOT / file).read_text().splitlines()
    return [line for line in lines if line and not line.startswith(("#", "-r"))]
