"""What both ends of the protocol know of shared images, beside their bytes."""

from __future__ import annotations

import re

IMAGE = "Tagmill-Image"
"""The header that names the image which an answer is of."""
NEWEST = "newest"
MEDIA_TYPE = "application/octet-stream"
SCHEMA = r"[0-9A-Za-z._]{1,64}"
DIGEST_BYTES = 32
"""The digest is BLAKE2b's, over all bytes."""

_NAME = re.compile(rf"([0-9a-f-]{{36}})-(\d{{1,18}})-({SCHEMA})-([0-9a-f]{{64}})")


def name(incarnation: str, rev: int, schema: str, digest: str) -> str:
    return f"{incarnation}-{rev}-{schema}-{digest}"


def parts(text: str) -> tuple[str, int, str, str]:
    """(incarnation, rev, schema, digest). Raises ValueError."""
    found = _NAME.fullmatch(text)
    if found is None:
        raise ValueError("an image is called incarnation-rev-schema-digest")
    incarnation, rev, schema, digest = found.groups()
    return incarnation, int(rev), schema, digest
