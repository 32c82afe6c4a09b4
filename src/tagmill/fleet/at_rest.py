"""Documents as they are stored: packed by zstd with a dictionary, which the row names, or as XML.

A document is stored as XML while its cluster has no dictionary for its probe (`dictionaries` trains
them), and where packing does not make it shorter. Its digest is always that of the XML.

A dictionary's id comes of its content, so that what a process remembers of one is right in every
history of the database; where it is not in this one, the foreign key refuses what names it.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import zstandard

from tagmill import sql
from tagmill.config import load
from tagmill.errors import DocumentDamaged
from tagmill_wire import zstd
from tagmill_wire.frames import identity

LEVEL = 3
# Above what the settings allow a document.
MAX_BYTES = 8 * 1024 * 1024
# Dictionaries that a process keeps, each with its tables some 500 kB.
MAX_LOADED = 32
# Contexts of zstd kept for each of them, up to 1 MB each: as many threads pack or unpack at once,
# and others make their own.
MAX_CONTEXTS = 2
# How long a process goes on packing with a dictionary that has a successor.
REFRESH_SECONDS = 10.0


class AtRest(NamedTuple):
    """What the columns of a document hold: `xml` or the next two. `size` is that of the XML."""

    xml: str | None
    packed: bytes | None
    dictionary: int | None
    size: int


class Dictionary:
    """Packs and unpacks, in any thread. `cluster`: the one whose documents it was made of, where
    that is still there."""

    def __init__(self, data: bytes, cluster: int | None = None) -> None:
        self.id = identity(data)
        self.data = data
        self.cluster = cluster
        self._content = zstandard.ZstdCompressionDict(data)
        self._content.precompute_compress(level=LEVEL)
        self._compressors: list[zstandard.ZstdCompressor] = []
        self._decompressors: list[zstandard.ZstdDecompressor] = []

    def pack(self, xml: bytes) -> bytes:
        # No two threads get the same one: `pop` is atomic.
        try:
            one = self._compressors.pop()
        except IndexError:
            # With a checksum, damaged bytes do not become another document.
            one = zstandard.ZstdCompressor(dict_data=self._content, write_checksum=True)
        packed: bytes = one.compress(xml)
        if len(self._compressors) < MAX_CONTEXTS:
            self._compressors.append(one)
        return packed

    def unpack(self, packed: bytes, size: int) -> bytes:
        """Raises ValueError for what is not `size` bytes packed with this dictionary."""
        try:
            one = self._decompressors.pop()
        except IndexError:
            one = zstd.decompressor_of(self._content)
        xml = zstd.unpack(packed, min(size, MAX_BYTES), one)
        if len(self._decompressors) < MAX_CONTEXTS:
            self._decompressors.append(one)
        if len(xml) != size:
            raise ValueError(f"{len(xml)} bytes in place of {size}")
        return xml


# -- what this process has read of the database ----------------------------------------------------

_lock = threading.Lock()
_loaded: OrderedDict[int, Dictionary] = OrderedDict()


class _Current:
    """The id of the dictionary that packs, by (cluster, probe), as it was at `read_at`."""

    def __init__(self) -> None:
        self.ids: dict[tuple[int, str], int] = {}
        self.read_at = float("-inf")


_current = _Current()


def forget() -> None:
    """Ask the database anew for the dictionaries that pack: one of them was refused."""
    _current.read_at = float("-inf")


def current(cluster: int, probe: str) -> Dictionary | None:
    """What packs documents of this probe in this cluster, if anything."""
    if not load().pack_documents:
        return None
    now = time.monotonic()
    if now - _current.read_at >= REFRESH_SECONDS:
        found = sql.rows(__file__, "current_dictionaries", {})
        _current.ids = {(item, probe): key for item, probe, key in found}
        _current.read_at = now
    key = _current.ids.get((cluster, probe))
    if key is None:
        return None
    try:
        return dictionary(key)
    except DocumentDamaged:
        # It was deleted in this moment, or is damaged: what it has packed says so when it is read.
        forget()
        return None


def dictionary(key: int) -> Dictionary:
    """The dictionary with this id. Raises DocumentDamaged."""
    with _lock:
        if found := _loaded.get(key):
            _loaded.move_to_end(key)
            return found
    rows = sql.rows(__file__, "dictionary", {"id": key})
    if not rows:
        raise _damaged(f"its dictionary {key} is missing")
    ((data, cluster),) = rows
    if identity(bytes(data)) != key:
        raise _damaged(f"its dictionary {key} is damaged")
    made = Dictionary(bytes(data), cluster)
    with _lock:
        _loaded[key] = made
        if len(_loaded) > MAX_LOADED:
            _loaded.popitem(last=False)
    return made


# -- packing and unpacking -------------------------------------------------------------------------


def pack(cluster: int, probe: str, xml: str, size: int) -> AtRest:
    """What is to be stored for a document of `size` bytes in UTF-8."""
    return _packed(current(cluster, probe), xml, size)


def packer(cluster: int) -> Callable[[str, str, int], AtRest]:
    """`pack` for a cluster, which asks the database now, and not while something is written."""
    current(cluster, "")
    probes = [probe for item, probe in _current.ids if item == cluster]
    known = {probe: current(cluster, probe) for probe in probes}
    return lambda probe, xml, size: _packed(known.get(probe), xml, size)


def _packed(found: Dictionary | None, xml: str, size: int) -> AtRest:
    if found is not None:
        packed = found.pack(xml.encode())
        if len(packed) < size:
            return AtRest(None, packed, found.id, size)
    return AtRest(xml, None, None, size)


def unpack(stored: AtRest) -> str:
    """The XML. Raises DocumentDamaged."""
    if stored.xml is not None:
        return stored.xml
    if stored.packed is None or stored.dictionary is None:
        raise _damaged("its row is incomplete")
    try:
        return dictionary(stored.dictionary).unpack(bytes(stored.packed), stored.size).decode()
    except ValueError as error:
        raise _damaged(str(error)) from None


def _damaged(reason: str) -> DocumentDamaged:
    return DocumentDamaged(
        f"the stored document cannot be read ({reason}): delete this probe's document of the node "
        "and upload it again"
    )
