"""What is uploaded for a node, checked before any lock is taken."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tagmill.config import load
from tagmill.errors import Invalid, InvalidDocument, TagmillError, TooLarge
from tagmill.fleet.digests import document_digest
from tagmill_expressions import documents
from tagmill_expressions.documents import Unparsed
from tagmill_expressions.errors import DocumentError, DocumentTooLarge

SYSTEM_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
# It becomes a namespace URI and a part of addresses.
PROBE = re.compile(r"[a-z][a-z0-9_-]{0,63}")
KIND = re.compile(r"[a-z][a-z0-9_-]{0,31}")
# The most probes of a node. One upload has so many documents, and deletes as many others.
MAX_PROBES = 16
HOSTNAME_LENGTH = 255


@dataclass(frozen=True)
class Upload:
    """`cluster`: name or uuid; None leaves the node where it is, and puts a new one into the only
    cluster. `hostname` and `kind`: None leaves them. `probes`: XML by probe; None deletes it.
    Text is taken as the same document in UTF-8.
    `expects` sees the node (a writes.Stored), or None, under the locks that the change takes, and
    raises where it is not the one that was meant."""

    system_id: str
    cluster: str | None = None
    hostname: str | None = None
    kind: str | None = None
    probes: Mapping[str, bytes | str | None] = field(default_factory=dict)
    expects: Callable[[Any], None] | None = None


@dataclass(frozen=True)
class Verdict:
    """`outcome`: created, updated, unchanged, deleted or refused (then `error` says why).

    `rev` is the node's. `settled`: whether every tag was evaluated for it in the transaction that
    stored it; None where nothing was stored. `digests`: those of the documents that were sent, by
    probe, where the node has them now."""

    system_id: str
    outcome: str
    rev: int | None = None
    error: TagmillError | None = None
    settled: bool | None = None
    digests: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckedDocument:
    """`size` and `digest` are those of `xml` in UTF-8."""

    xml: str
    size: int
    digest: bytes
    probe: str
    unparsed: Unparsed

    def parse(self, surely: Container[bytes] = ()) -> None:
        """Raises InvalidDocument (with line and column) and TooLarge. What has the digest of a
        stored document was parsed when that was stored; `surely`: as `surely_parsed` found."""
        if self.digest not in surely:
            try:
                self.unparsed.check()
            except DocumentError as error:
                raise _invalid(error, self.probe) from None
        limit = self.unparsed.limits.bytes
        if self.size > limit:
            # The document was within the limit in its own encoding, and is longer in UTF-8.
            raise TooLarge(
                f"the document has {self.size:,} bytes in UTF-8, more than the limit of {limit:,}",
                limit=limit,
                probe=self.probe,
            )


@dataclass(frozen=True)
class CheckedUpload:
    """An upload that can be stored, once those of its documents are parsed that are not stored
    already. `documents` is None for those to delete."""

    upload: Upload
    documents: Mapping[str, CheckedDocument | None]

    def changed(self, stored: Mapping[str, bytes]) -> Iterator[CheckedDocument]:
        """The documents that are not among those stored for the node, of which these are the
        digests by probe."""
        for probe, document in self.documents.items():
            if document is not None and stored.get(probe) != document.digest:
                yield document

    def verdict(self, outcome: str, rev: int | None) -> Verdict:
        sent = {probe: each.digest for probe, each in self.documents.items() if each is not None}
        return Verdict(self.upload.system_id, outcome, rev, digests=sent)

    def parse(self, stored: Mapping[str, bytes], surely: Container[bytes] = ()) -> None:
        """Parse what is changed. Raises as CheckedDocument."""
        for document in self.changed(stored):
            document.parse(surely)


def surely_parsed(found: Sequence[CheckedDocument]) -> frozenset[bytes]:
    """The digests of those which surely parse: all are looked at together, without lxml."""
    if not found:
        return frozenset()
    texts = [document.xml for document in found]
    answers = documents.surely_parse(texts, found[0].unparsed.limits)
    return frozenset(item.digest for item, is_sure in zip(found, answers, strict=True) if is_sure)


def check(upload: Upload) -> CheckedUpload:
    """What can be told without parsing. Raises Invalid, InvalidDocument (with line and column) and
    TooLarge."""
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
    count = sum(data is not None for data in upload.probes.values())
    if count > MAX_PROBES or len(upload.probes) > 2 * MAX_PROBES:
        raise Invalid(f"a node has at most {MAX_PROBES} probes", field="probes")
    found: dict[str, CheckedDocument | None] = {}
    try:
        for probe, data in upload.probes.items():
            found[probe] = _document(probe, data)
    except TagmillError:
        # What is wrong with the first of them is told first.
        CheckedUpload(upload, found).parse({})
        raise
    return CheckedUpload(upload, found)


def _document(probe: str, data: bytes | str | None) -> CheckedDocument | None:
    if not PROBE.fullmatch(probe):
        raise Invalid(
            "a probe's name is 1 to 64 lower-case letters, digits, dashes or underscores, "
            "a letter first, for example lshw",
            field="probe",
        )
    if data is None:
        return None
    config = load()
    limits = _limits(config.document_bytes, config.document_depth, config.document_nodes)
    try:
        unparsed = documents.unparsed(data, limits)
    except DocumentTooLarge as error:
        raise TooLarge(str(error), limit=error.limit, probe=probe) from None
    except DocumentError as error:
        raise _invalid(error, probe) from None
    xml = unparsed.kept()
    encoded = xml.encode()
    return CheckedDocument(xml, len(encoded), document_digest(encoded), probe, unparsed)


@functools.lru_cache(maxsize=4)
def _limits(size: int, depth: int, nodes: int) -> documents.Limits:
    return documents.Limits(bytes=size, depth=depth, nodes=nodes)


def _invalid(error: DocumentError, probe: str) -> InvalidDocument:
    return InvalidDocument(str(error), line=error.line, column=error.column, probe=probe)
