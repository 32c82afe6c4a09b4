"""Batches with documents as they are at rest."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest
import zstandard

from tagmill_wire import frames
from tagmill_wire.frames import PLAIN, PackedBatch, PackedDocument, PackedNode
from tagmill_wire.messages import Batch, WireError, dump

XML = b"<list>" + b"".join(b"<node id='%d'/>" % number for number in range(50)) + b"</list>"
MOST = 1 << 20


@dataclass
class Made:
    content: bytes = field(
        default_factory=lambda: zstandard.train_dictionary(
            1024, [XML + b"<!-- %d -->" % number for number in range(300)]
        ).as_bytes()
    )

    def packed(self, xml: bytes, size: int | None = None, key: int = 7) -> PackedDocument:
        dictionary = zstandard.ZstdCompressionDict(self.content)
        data = zstandard.ZstdCompressor(dict_data=dictionary, write_checksum=True).compress(xml)
        return PackedDocument(key, len(xml) if size is None else size, data)

    def batch(self, *documents: PackedDocument) -> bytes:
        nodes = [PackedNode(slot, 3, {"lshw": item}) for slot, item in enumerate(documents)]
        return frames.dump(PackedBatch(1, 3, nodes, None, {7: self.content}))


MADE = Made()


def test_a_batch_is_read_as_it_was_written() -> None:
    nodes = [
        PackedNode(0, 1, {"lshw": MADE.packed(XML), "lldp": PackedDocument(PLAIN, 4, b"<a/>")}),
        PackedNode(1, 2, {}),
        PackedNode(5, 3, None),
    ]
    data = frames.dump(PackedBatch(1, 3, nodes, 5, {7: MADE.content}))
    assert frames.is_packed(data) and not frames.is_packed(dump(Batch(1, 3, [], None)))
    assert frames.load(data, MOST) == [
        (0, 1, {"lshw": XML.decode(), "lldp": "<a/>"}),
        (1, 2, {}),
        (5, 3, None),
    ]


def test_a_damaged_document_is_empty_and_the_others_are_not() -> None:
    good = MADE.packed(XML)
    turned = good.data[:-3] + bytes([good.data[-3] ^ 1]) + good.data[-2:]
    data = MADE.batch(
        good,
        PackedDocument(7, good.size, turned),
        PackedDocument(7, good.size, b"nonsense"),
        MADE.packed(XML, size=len(XML) - 1),
        MADE.packed(XML, size=len(XML) + 1),
        PackedDocument(PLAIN, 5, b"<a/>"),
        PackedDocument(PLAIN, 1, b"\xff"),
        good,
    )
    texts = [(probes or {})["lshw"] for _, _, probes in frames.load(data, MOST)]
    assert texts == [XML.decode(), *[""] * 6, XML.decode()]


def test_a_batch_is_unpacked_within_its_bound() -> None:
    data = MADE.batch(MADE.packed(XML), MADE.packed(XML))
    assert len(frames.load(data, 2 * len(XML))) == 2
    for most, bad in ((2 * len(XML) - 1, data), (MOST, MADE.batch(MADE.packed(XML, size=-1)))):
        with pytest.raises(WireError, match="bytes of documents"):
            frames.load(bad, most)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x95",
        msgspec.msgpack.encode([1, 2]),
        MADE.batch(MADE.packed(XML))[:-1],
        MADE.batch(MADE.packed(XML, key=8)),
    ],
)
def test_what_is_no_batch_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        frames.load(data, MOST)


def test_a_batch_may_leave_out_the_dictionaries_that_it_names() -> None:
    key = frames.identity(MADE.content)
    batch = PackedBatch(
        1, 3, [PackedNode(0, 1, {"lshw": MADE.packed(XML, key=key)})], None, {key: MADE.content}
    )
    header = frames.names(batch.dictionaries)
    data = frames.dump(frames.without_dictionaries(batch))
    assert frames.named(header) == [key] and len(data) < len(MADE.content)
    assert frames.load(data, MOST, [MADE.content]) == frames.load(frames.dump(batch), MOST)
    with pytest.raises(WireError, match=str(key)):
        frames.load(data, MOST, [MADE.content[:-1]])


@pytest.mark.parametrize("header", ["x", "1,,2", "-1", "9" * 20, ",".join(["1"] * 65)])
def test_a_header_that_names_no_dictionaries_is_refused(header: str) -> None:
    assert frames.named(None) == frames.named("") == []
    with pytest.raises(WireError, match=frames.DICTIONARIES):
        frames.named(header)
