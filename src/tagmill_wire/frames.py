"""A batch with its documents as they are at rest: packed, beside the dictionaries that they name.

The server neither unpacks nor quotes them, and who reads the batch needs nothing else, but for the
dictionaries of a batch that was asked for as NAMED_TYPE: the answer names them in a header, and
they are fetched once each. By msgpack, whose arrays never begin as JSON's object does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec
import zstandard

from tagmill_wire import zstd
from tagmill_wire.messages import Bigint, WireError

MEDIA_TYPE = "application/vnd.tagmill.batch"
NAMED = "dictionaries=named"
NAMED_TYPE = f"{MEDIA_TYPE}; {NAMED}"
"""In Accept: the answer need not bring its dictionaries."""
DICTIONARIES = "Tagmill-Dictionaries"
"""The header that names those which it does not bring."""
# One batch has documents of a few probes, and of each of these of a few versions.
MAX_NAMED = 64
MAX_DICTIONARY_BYTES = 1 << 20
MAX_DIGITS = 19  # bigint
PLAIN = 0
"""In place of a dictionary: the data is the XML itself."""


class PackedDocument(msgspec.Struct, array_like=True, frozen=True):
    """`size` is that of the XML."""

    dictionary: Bigint
    size: Bigint
    data: bytes


class PackedNode(msgspec.Struct, array_like=True, frozen=True):
    """`probes` as in BatchNode."""

    slot: Bigint
    rev: Bigint
    probes: dict[str, PackedDocument] | None


class PackedBatch(msgspec.Struct, array_like=True, frozen=True):
    """What Batch says."""

    partition: Bigint
    rev: Bigint
    nodes: list[PackedNode]
    next: Bigint | None
    dictionaries: dict[Bigint, bytes]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(PackedBatch)


def dump(batch: PackedBatch) -> bytes:
    return _encoder.encode(batch)


def is_packed(data: bytes) -> bool:
    """Whether it is what `dump` makes, and not JSON."""
    return not data.startswith(b"{")


def identity(dictionary: bytes) -> int:
    """The id of a dictionary with this content: 63 bits of its SHA-256."""
    return int.from_bytes(hashlib.sha256(dictionary).digest()[:8], "big") >> 1


def names(ids: Iterable[int]) -> str:
    """The value of DICTIONARIES."""
    return ", ".join(map(str, ids))


def named(header: str | None) -> list[int]:
    """The ids in a value of DICTIONARIES. Raises WireError."""
    texts = [text.strip() for text in header.split(",")] if header else []
    good = all(text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS for text in texts)
    if not good or len(texts) > MAX_NAMED:
        raise WireError(DICTIONARIES, f"must be {MAX_NAMED} numbers at most")
    return [int(text) for text in texts]


def without_dictionaries(batch: PackedBatch) -> PackedBatch:
    return msgspec.structs.replace(batch, dictionaries={})


def load(
    data: bytes, most_bytes: int, others: Iterable[bytes] = ()
) -> list[tuple[int, int, dict[str, str] | None]]:
    """The (slot, rev, probes) of a batch, whose documents have `most_bytes` of XML at most. One
    that is damaged is empty, so that nothing takes it for a document. `others`: dictionaries that
    it does not bring. Raises WireError."""
    try:
        batch = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise WireError("", f"not a packed batch: {error}") from None
    documents = [item for node in batch.nodes for item in (node.probes or {}).values()]
    if any(item.size < 0 for item in documents) or sum(d.size for d in documents) > most_bytes:
        raise WireError("nodes", f"more than {most_bytes} bytes of documents")
    known = {
        key: zstd.decompressor_of(zstandard.ZstdCompressionDict(content))
        for key, content in (
            *batch.dictionaries.items(),
            *((identity(content), content) for content in others),
        )
    }
    try:
        return [
            (
                node.slot,
                node.rev,
                None
                if node.probes is None
                else {probe: _text(item, known) for probe, item in node.probes.items()},
            )
            for node in batch.nodes
        ]
    except KeyError as error:
        raise WireError("dictionaries", f"there is no {error}") from None


def _text(item: PackedDocument, known: dict[int, zstandard.ZstdDecompressor]) -> str:
    if item.dictionary == PLAIN:
        data = item.data
    else:
        one = known[item.dictionary]
        try:
            data = zstd.unpack(item.data, item.size, one)
        except ValueError:
            return ""
    if len(data) != item.size:
        return ""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return ""
