"""Images of pages in files: the kernel's own, STEM.image, and beside it, STEM.slots, what else the
child knows of the page. The name of both is the page's digest.

An image is a pure function of its page. So it is believed where STEM.slots names that page, the
head of STEM.image (its schema and digest) and the versions that made it, where the digest of
STEM.slots is right, and where the kernel finds its own file right. Every other is made again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import orjson

from tagmill_wire import __version__
from tagmill_worker.cache import files
from tagmill_worker.errors import ImageRefused
from tagmill_worker.evaluators.base import Evaluator, Image, Keeper, Kept, Source

# Magic, schema and digest of a file of the kernel's (kernel/src/image/file.rs).
HEAD_BYTES = 44
# 65,536 slots, each with its rev.
MAX_SLOTS_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Held:
    """The image of a page. `slots`: all that the page names, those without documents included;
    `revs` by slot."""

    image: Image
    slots: int
    revs: dict[int, int]

    def newer(self, rev: int, slots: int) -> int:
        """The slots given whose nodes have changed after the rev."""
        if min(self.revs.values(), default=0) > rev:
            return slots
        return slots & sum(1 << slot for slot, changed in self.revs.items() if changed > rev)


def save(evaluator: Evaluator, held: Held, stem: Path) -> int:
    """The bytes that both files take. Raises OSError and ImageRefused."""
    path = stem.with_suffix(files.IMAGE)
    more = cast(Kept, held.image).save(path)
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    about = {
        "page": stem.name,
        "head": head.hex(),
        "by": _by(evaluator),
        "slots": f"{held.slots:x}",
        "revs": list(held.revs.items()),
        "more": more,
    }
    text = orjson.dumps(about)
    hashed = hashlib.blake2b(text, digest_size=files.DIGEST_BYTES).digest()
    return path.stat().st_size + files.replace(stem.with_suffix(files.SLOTS), [hashed, text])


def load(evaluator: Evaluator, stem: Path, source: Source, shadow: float) -> Held:
    """Raises OSError and ImageRefused."""
    about = _about(evaluator, stem)
    path = stem.with_suffix(files.IMAGE)
    with path.open("rb") as file:
        if file.read(HEAD_BYTES).hex() != about["head"]:
            raise ImageRefused("the image is another one")
    image = cast(Keeper, evaluator).open(path, about["more"], source, shadow)
    return Held(image, int(about["slots"], 16), dict(about["revs"]))


def _about(evaluator: Evaluator, stem: Path) -> Mapping[str, Any]:
    with stem.with_suffix(files.SLOTS).open("rb") as file:
        found = file.read(MAX_SLOTS_BYTES)
    hashed, text = found[: files.DIGEST_BYTES], found[files.DIGEST_BYTES :]
    if hashlib.blake2b(text, digest_size=files.DIGEST_BYTES).digest() != hashed:
        raise ImageRefused("what belongs to the image has another digest")
    # Its digest is right: it is what `save` wrote.
    about: Mapping[str, Any] = orjson.loads(text)
    if about["page"] != stem.name:
        raise ImageRefused("it is of another page")
    if about["by"] != _by(evaluator):
        raise ImageRefused(f"it was made by {about['by']}, not {_by(evaluator)}")
    return about


def _by(evaluator: Evaluator) -> str:
    """What else an image is a function of."""
    return f"{evaluator.name} {cast(Keeper, evaluator).version} of {__version__}"
