"""The digests that tell a changed upload from an unchanged one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping


def document_digest(xml: bytes) -> bytes:
    """SHA-256 of a document's UTF-8 bytes, as stored (no XML declaration)."""
    return hashlib.sha256(xml).digest()


def node_digest(documents: Mapping[str, bytes]) -> bytes:
    """SHA-256 over all documents of a node: {probe: document digest} to 32 bytes.

    Hashes `probe name, NUL, document digest` for the probes in sorted order; a node without any
    document has the empty digest.
    """
    if not documents:
        return b""
    digest = hashlib.sha256()
    for probe in sorted(documents):
        digest.update(probe.encode())
        digest.update(b"\0")
        digest.update(documents[probe])
    return digest.digest()
