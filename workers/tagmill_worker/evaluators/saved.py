"""Images of pages in files: the kernel's own, STEM.image, and beside it, STEM.slots, what else the
child knows of the page. The name of both is the page's digest.

An image is a pure function of its page. So it is believed where STEM.slots names that page, the
head of STEM.image (its schema and digest) and the versions that made it, where the digest of
STEM.slots is right, and where the kernel finds its own file right. Every other is made again.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

import msgspec
import orjson

from tagmill_wire import __version__
from tagmill_worker.cache import bundle, files
from tagmill_worker.errors import ImageRefused
from tagmill_worker.evaluators.base import Evaluator, Image, Keeper, Kept, Source

# Magic, schema and digest of a file of the kernel's (kernel/src/image/file.rs).
HEAD_BYTES = 44
# 65,536 slots, each with its rev.
MAX_SLOTS_BYTES = 4 * 2**20
# A partition has 65,536 at most. A larger number would be a bitmap of as many bits.
MAX_SLOT = 65_535
MAX_HEX = MAX_SLOT // 4 + 1

_Slot = Annotated[int, msgspec.Meta(ge=0, le=MAX_SLOT)]
_Rev = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Bitmap = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]+$", max_length=MAX_HEX)]


class About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What STEM.slots says, behind its digest."""

    page: str
    head: str
    by: str
    slots: _Bitmap
    revs: list[tuple[_Slot, _Rev]]
    more: dict[str, _Bitmap]


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
    with stem.with_suffix(files.SLOTS).open("rb") as file:
        found = file.read(MAX_SLOTS_BYTES)
    about = _about(evaluator, stem.name, found)
    return _load(evaluator, about, stem.with_suffix(files.IMAGE), source, shadow)


def load_packed(
    evaluator: Evaluator, page: str, packed: bytes, source: Source, shadow: float
) -> Held:
    """As `load`, from what another worker's files had; `page`: the digest of the page. The kernel
    opens files, so the image is in one that has no name. Raises OSError, ImageRefused and
    ProtocolError."""
    slots, image = bundle.unpack_image(packed)
    about = _about(evaluator, page, slots)
    descriptor = os.memfd_create("tagmill-image", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(image)
        path = Path(f"/proc/self/fd/{descriptor}")
        return _load(evaluator, about, path, source, shadow)
    finally:
        os.close(descriptor)


def _load(evaluator: Evaluator, about: About, path: Path, source: Source, shadow: float) -> Held:
    with path.open("rb") as file:
        if file.read(HEAD_BYTES).hex() != about.head:
            raise ImageRefused("the image is another one")
    image = cast(Keeper, evaluator).open(path, about.more, source, shadow)
    held, revs = int(about.slots, 16), dict(about.revs)
    if sum(1 << slot for slot in revs) != held:
        raise ImageRefused("its revs are of other slots")
    return Held(image, held, revs)


def _about(evaluator: Evaluator, page: str, found: bytes) -> About:
    hashed, text = found[: files.DIGEST_BYTES], found[files.DIGEST_BYTES :]
    if hashlib.blake2b(text, digest_size=files.DIGEST_BYTES).digest() != hashed:
        raise ImageRefused("what belongs to the image has another digest")
    try:
        about = msgspec.json.decode(text, type=About)
    except msgspec.MsgspecError as error:
        raise ImageRefused(f"what belongs to the image is wrong: {error}") from None
    if about.page != page:
        raise ImageRefused("it is of another page")
    if about.by != _by(evaluator):
        raise ImageRefused(f"it was made by {about.by}, not {_by(evaluator)}")
    return about


def _by(evaluator: Evaluator) -> str:
    """What else an image is a function of."""
    return f"{evaluator.name} {cast(Keeper, evaluator).version} of {__version__}"
