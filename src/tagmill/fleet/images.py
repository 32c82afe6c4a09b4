"""Images of partitions that workers share, so that another need not fetch and parse every document.

The bytes are files in the image store (Django's Storage API), the newest of each partition and
schema; a row of SharedImage says which. A file is never changed or written twice: another one takes
its place, and then it is deleted. Images are no truth: whoever finds none reads the documents, and
the whole store may be deleted at any time.

A file is believed by the digest that its row has. So what lies in the store without a row (of a
crash, or put there by somebody else) is read by nobody, and `sweep` deletes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from datetime import timedelta
from typing import IO, Any, NamedTuple

import structlog
from django.core.files.base import File
from django.core.files.storage import Storage, storages
from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from tagmill import locks, sql
from tagmill.config import load
from tagmill.errors import (
    ImageMissing,
    ImagesOff,
    ImageStoreFull,
    ImagesUnavailable,
    Invalid,
    NotFound,
)
from tagmill.fleet import incarnation
from tagmill.fleet.models import Partition, SharedImage
from tagmill_wire import images as wire

log = structlog.get_logger("tagmill.images")

STORE = "images"
# A fleet in the middle of an upgrade has two kinds of workers, each in two versions.
MAX_SCHEMAS = 4
# Who has stored a file names it in a row within seconds.
ORPHAN_AGE = timedelta(hours=1)
# Bounds one run of the sweep; the next goes on.
MAX_SWEPT = 10_000
READ_BYTES = 1024 * 1024

_SCHEMA = re.compile(wire.SCHEMA)


class Name(NamedTuple):
    """What an image is called. No two images have the same."""

    incarnation: str
    rev: int
    schema: str
    digest: str

    def __str__(self) -> str:
        return wire.name(*self)

    @classmethod
    def read(cls, text: str) -> Name:
        """Raises Invalid."""
        try:
            return cls(*wire.parts(text))
        except ValueError as error:
            raise Invalid(str(error), field="name") from None


def name_of(image: SharedImage) -> Name:
    return Name(str(image.incarnation), image.rev, image.schema, image.digest)


def newest(partition: int, named: str, schema: str) -> SharedImage:
    """The image of that schema. Raises IncarnationChanged, Invalid, and ImageMissing."""
    _is_on()
    if not _SCHEMA.fullmatch(schema):
        raise Invalid("a schema is 1 to 64 letters, digits, dots and underscores", field="schema")
    incarnation.check(named)
    rows = SharedImage.objects.filter(partition_id=partition, schema=schema, incarnation=named)
    found = rows.first()
    if found is None:
        raise ImageMissing(f"no image of partition {partition} is shared")
    return found


def named(partition: int, name: Name) -> SharedImage:
    """That very image. Raises as `newest`, also where a newer one took its place."""
    found = newest(partition, name.incarnation, name.schema)
    if name_of(found) != name:
        raise ImageMissing("another image took its place")
    return found


def opened(image: SharedImage) -> IO[bytes]:
    """Its file, at the beginning. Raises ImageMissing where the store has it no more, and
    ImagesUnavailable."""
    try:
        file: Any = _store().open(image.file)
        # What is far away is fetched here.
        size = file.seek(0, 2)
        file.seek(0)
    except FileNotFoundError:
        size = -1
    except Exception as error:
        raise _unavailable(error) from error
    if size == image.size:
        found: IO[bytes] = file
        return found
    log.warning(
        "an image is gone from the store, or another file in its place",
        action="image_gone",
        file=image.file,
        bytes=size,
    )
    SharedImage.objects.filter(id=image.id, file=image.file).delete()
    raise ImageMissing("the image is gone from the store")


def is_wanted(partition: int, name: Name, size: int) -> bool:
    """Whether it would be stored: False where there is one as new. Raises ImagesOff,
    IncarnationChanged, NotFound, Invalid for a rev that has never been, and ImageStoreFull."""
    most = _is_on()
    incarnation.check(name.incarnation)
    row = Partition.objects.filter(id=partition).values_list("rev", flat=True).first()
    if row is None:
        raise NotFound(f"no partition {partition}")
    if name.rev > row:
        raise Invalid(f"partition {partition} is at rev {row}", field="rev")
    try:
        old = newest(partition, name.incarnation, name.schema)
    except ImageMissing:
        replaced = 0
    else:
        if old.rev >= name.rev:
            return False
        replaced = old.size
    taken = SharedImage.objects.aggregate(bytes=Sum("size"))["bytes"] or 0
    if taken - replaced + size > most:
        raise ImageStoreFull(
            f"shared images take {taken} bytes of {most} (TAGMILL_IMAGE_STORE_BYTES)", limit=most
        )
    return True


def store(partition: int, name: Name, body: IO[bytes], size: int) -> bool:
    """Keep it in the place of an older one; False where there is one as new. `body` is at its
    beginning. Raises what `is_wanted` does, Invalid for a body of another digest, and
    ImagesUnavailable."""
    if not is_wanted(partition, name, size):
        return False
    if _digest(body) != name.digest:
        raise Invalid("the body has another digest than the name", field="name")
    body.seek(0)
    asked = f"{name.incarnation}/{partition}-{name.rev}-{name.schema}-{name.digest[:16]}"
    # The store gives another name where there is such a file already.
    try:
        file = _store().save(asked, File(body), max_length=255)
    except Exception as error:
        raise _unavailable(error) from error
    try:
        gone = _stored(partition, name, size, file)
    except BaseException:
        _delete(file)
        raise
    if gone is None:
        _delete(file)
        return False
    for old in gone:
        _delete(old)
    return True


def _stored(partition: int, name: Name, size: int, file: str) -> list[str] | None:
    """The files that nobody needs any more; None where another one was as new."""
    row = {
        "partition": partition,
        "schema": name.schema,
        "incarnation": name.incarnation,
        "rev": name.rev,
        "digest": name.digest,
        "size": size,
        "file": file,
    }
    with transaction.atomic():
        locks.fleet()
        rows = sql.rows(__file__, "store_image", row)
        if not rows:
            return None
        gone = [old for (old,) in rows if old is not None]
        kept = {"partition": partition, "kept": MAX_SCHEMAS}
        return gone + [old for (old,) in sql.rows(__file__, "older_schemas", kept)]


def sweep() -> int:
    """Delete images of other incarnations, of kinds of workers that are no more, and files that no
    row names; how many. Bounded, and
    without an error where the store does not answer: nothing depends on it."""
    current = {"incarnation": str(incarnation.current()), "days": load().image_days}
    gone = [file for (file,) in sql.rows(__file__, "images_of_the_past", current)]
    for file in gone:
        _delete(file)
    try:
        gone += _orphans()
    except Exception as error:
        log.warning("the image store was not swept", action="images_unswept", error=repr(error))
    return len(gone)


def _orphans() -> list[str]:
    """Files without a row, deleted."""
    store, gone = _store(), []
    before = timezone.now() - ORPHAN_AGE
    known = set(SharedImage.objects.values_list("file", flat=True))
    with contextlib.suppress(FileNotFoundError):
        for folder in store.listdir("")[0]:
            for name in store.listdir(folder)[1]:
                file = f"{folder}/{name}"
                if file in known or store.get_modified_time(file) > before:
                    continue
                _delete(file)
                gone.append(file)
                if len(gone) >= MAX_SWEPT:
                    return gone
    return gone


def _is_on() -> int:
    """The bytes that all images may take. Raises ImagesOff."""
    most = load().image_store_bytes
    if not most:
        raise ImagesOff("no images are shared here (TAGMILL_IMAGE_STORE_BYTES is 0)")
    return most


def _store() -> Storage:
    found: Storage = storages[STORE]
    return found


def _digest(body: IO[bytes]) -> str:
    hashed = hashlib.blake2b(digest_size=wire.DIGEST_BYTES)
    while part := body.read(READ_BYTES):
        hashed.update(part)
    return hashed.hexdigest()


def _unavailable(error: Exception) -> ImagesUnavailable:
    log.error("the image store does not answer", action="images_unavailable", error=repr(error))
    return ImagesUnavailable(
        "the image store (TAGMILL_IMAGE_STORE) is out of order; documents are served as before"
    )


def _delete(file: str) -> None:
    """Whatever the store says: what stays behind is swept."""
    try:
        _store().delete(file)
    except Exception as error:
        log.warning("an image was not deleted", action="image_kept", file=file, error=repr(error))
