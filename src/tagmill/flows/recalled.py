"""Lines of bulk uploads that this process has met before, byte for byte.

Whoever imports a whole fleet sends mostly what was sent the last time. The digests of such a line's
documents are known, and while the database has the same ones, nobody needs its JSON or its XML: to
read them is most of what an unchanged line costs.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tagmill.fleet.documents import CheckedDocument, CheckedUpload, Upload

# Shorter ones are read as fast as they are recognised.
MIN_BYTES = 2048
# Lines in each of two generations, at 0.7 kB or less each. A fleet of more than twice as many nodes
# is read anew each time.
MAX_KNOWN = 32_768
# A line of more documents is not kept, so that each takes as little.
MAX_DOCUMENTS = 4

Documents = Mapping[str, CheckedDocument | None]


class RecalledDocument(CheckedDocument):
    """A document that can be compared with a stored one. The rest of it is read from its line when
    it is asked for: when it is to be stored."""

    def __init__(self, probe: str, digest: bytes, size: int, read: Callable[[], Documents]) -> None:
        # The dataclass is frozen.
        self.__dict__.update(probe=probe, digest=digest, size=size, read=read)

    def __getattr__(self, name: str) -> Any:
        """Reads what was not read yet."""
        if name not in {"xml", "unparsed"}:
            raise AttributeError(name)
        whole = self.__dict__["read"]()[self.probe]
        self.__dict__.update(xml=whole.xml, unparsed=whole.unparsed)
        return self.__dict__[name]


class _Known(NamedTuple):
    """What a line says: `upload` without documents, and of each of those its digest and size, by
    probe; None for one to delete."""

    upload: Upload
    documents: Mapping[str, tuple[bytes, int] | None]


class Lines:
    """For any thread. The older generation goes when the newer one is full; what is met again joins
    the newer one."""

    def __init__(self, most: int = MAX_KNOWN) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._newer: dict[bytes, _Known] = {}
        self._older: dict[bytes, _Known] = {}

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)

    def get(self, key: bytes, read: Callable[[], Documents]) -> CheckedUpload | None:
        """What the line with this key says, if it is known. `read` reads its documents."""
        known = self._newer.get(key)
        if known is None:
            known = self._older.get(key)
            if known is None:
                return None
            self._remember(key, known)
        documents = {
            probe: None if item is None else RecalledDocument(probe, *item, read)
            for probe, item in known.documents.items()
        }
        return CheckedUpload(known.upload, documents)

    def keep(self, key: bytes, upload: Upload, documents: Documents) -> None:
        """A line with this key says that, and everything that it says was found to be right."""
        if 0 < len(documents) <= MAX_DOCUMENTS:
            names = Upload(upload.system_id, upload.cluster, upload.hostname, upload.kind)
            found = {
                probe: None if item is None else (item.digest, item.size)
                for probe, item in documents.items()
            }
            self._remember(key, _Known(names, found))

    def _remember(self, key: bytes, known: _Known) -> None:
        with self._lock:
            if len(self._newer) >= self._most:
                self._newer, self._older = {}, self._newer
            self._newer[key] = known


def key_of(line: bytes) -> bytes | None:
    """None for a line that is not worth it."""
    return hashlib.sha256(line).digest() if len(line) >= MIN_BYTES else None
