"""A batch with its documents as they are at rest: packed, beside the dictionaries that they name.

The server neither unpacks nor quotes them, and who reads the batch needs nothing else. By msgpack,
whose arrays never begin as JSON's object does.
"""

from __future__ import annotations

import msgspec
import zstandard

from tagmill_wire import zstd
from tagmill_wire.messages import Bigint, WireError

MEDIA_TYPE = "application/vnd.tagmill.batch"
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


def load(data: bytes, most_bytes: int) -> list[tuple[int, int, dict[str, str] | None]]:
    """The (slot, rev, probes) of a batch, whose documents have `most_bytes` of XML at most. One
    that is damaged is empty, so that nothing takes it for a document. Raises WireError."""
    try:
        batch = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise WireError("", f"not a packed batch: {error}") from None
    documents = [item for node in batch.nodes for item in (node.probes or {}).values()]
    if any(item.size < 0 for item in documents) or sum(d.size for d in documents) > most_bytes:
        raise WireError("nodes", f"more than {most_bytes} bytes of documents")
    known = {
        key: zstd.decompressor_of(zstandard.ZstdCompressionDict(content))
        for key, content in batch.dictionaries.items()
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
