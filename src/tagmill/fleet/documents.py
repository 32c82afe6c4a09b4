"""What is uploaded for a node, checked before any lock is taken."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tagmill.config import load
from tagmill.errors import Invalid, InvalidDocument, TagmillError, TooLarge
from tagmill.fleet.digests import document_digest
from tagmill_expressions import documents
from tagmill_expressions.errors import DocumentError, DocumentTooLarge

SYSTEM_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
# It becomes a namespace URI and a part of addresses.
PROBE = re.compile(r"[a-z][a-z0-9_-]{0,63}")
KIND = re.compile(r"[a-z][a-z0-9_-]{0,31}")
# The most probes of a node, and of one upload with its deletions.
MAX_PROBES = 16
HOSTNAME_LENGTH = 255


@dataclass(frozen=True)
class Upload:
    """`cluster`: name or uuid; None leaves the node where it is, and puts a new one into the only
    cluster. `hostname` and `kind`: None leaves them. `probes`: XML by probe; None deletes it.
    `expects` sees the node (a writes.Stored), or None, under the locks that the change takes, and
    raises where it is not the one that was meant."""

    system_id: str
    cluster: str | None = None
    hostname: str | None = None
    kind: str | None = None
    probes: Mapping[str, bytes | None] = field(default_factory=dict)
    expects: Callable[[Any], None] | None = None


@dataclass(frozen=True)
class Verdict:
    """`outcome`: created, updated, unchanged or refused (then `error` says why).

    `rev` is the node's. `settled`: whether every tag was evaluated for it in the transaction that
    stored it; None where nothing was stored."""

    system_id: str
    outcome: str
    rev: int | None = None
    error: TagmillError | None = None
    settled: bool | None = None


@dataclass(frozen=True)
class CheckedDocument:
    xml: str
    size: int
    digest: bytes


@dataclass(frozen=True)
class CheckedUpload:
    """An upload that can be stored. `documents` is None for those to delete."""

    upload: Upload
    documents: Mapping[str, CheckedDocument | None]


def check(upload: Upload) -> CheckedUpload:
    """Raises Invalid, InvalidDocument (with line and column) and TooLarge."""
    if not SYSTEM_ID.fullmatch(upload.system_id):
        raise Invalid(
            "a system_id is 1 to 64 letters, digits, dots, colons, dashes or underscores",
            field="system_id",
        )
    if upload.system_id in {".", ".."}:
        # Clients resolve them, also as %2e, before they ask.
        raise Invalid(
            "a system_id must not be a dot or two: addresses drop them", field="system_id"
        )
    if upload.kind is not None and not KIND.fullmatch(upload.kind):
        raise Invalid(
            "a kind is 1 to 32 lower-case letters, digits, dashes or underscores, a letter first",
            field="kind",
        )
    hostname = upload.hostname or ""
    if len(hostname) > HOSTNAME_LENGTH or not hostname.isprintable():
        raise Invalid(f"a hostname is at most {HOSTNAME_LENGTH} characters", field="hostname")
    if len(upload.probes) > MAX_PROBES:
        raise Invalid(f"a node has at most {MAX_PROBES} probes", field="probes")
    return CheckedUpload(
        upload, {probe: _document(probe, data) for probe, data in upload.probes.items()}
    )


def _document(probe: str, data: bytes | None) -> CheckedDocument | None:
    if not PROBE.fullmatch(probe):
        raise Invalid(
            "a probe's name is 1 to 64 lower-case letters, digits, dashes or underscores, "
            "a letter first, for example lshw",
            field="probe",
        )
    if data is None:
        return None
    config = load()
    limits = documents.Limits(
        bytes=config.document_bytes, depth=config.document_depth, nodes=config.document_nodes
    )
    try:
        xml = documents.normalise(data, limits)
    except DocumentTooLarge as error:
        raise TooLarge(str(error), limit=error.limit, probe=probe) from None
    except DocumentError as error:
        raise InvalidDocument(
            str(error), line=error.line, column=error.column, probe=probe
        ) from None
    encoded = xml.encode()
    if len(encoded) > config.document_bytes:
        # The document was within the limit in its own encoding, and is longer in UTF-8.
        raise TooLarge(
            f"the document has {len(encoded):,} bytes in UTF-8, more than the limit of "
            f"{config.document_bytes:,}",
            limit=config.document_bytes,
            probe=probe,
        )
    return CheckedDocument(xml, len(encoded), document_digest(encoded))
