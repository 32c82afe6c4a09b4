"""The parent's side of saving images: one after the other, beside whatever is evaluated."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from tagmill_worker.evaluators.child_process import ChildProcess
from tagmill_worker.pages import Page


class SavedImages(Protocol):
    """Where the images of pages are (tagmill_worker.cache.page_images)."""

    def image(self, page: Page) -> Path | None: ...

    def image_opened(self, stem: Path, reason: str) -> None: ...

    def image_saved(self, stem: Path, size: int) -> None: ...

    def image_not_saved(self, stem: Path, reason: str) -> None: ...


class Saving:
    """Deferreds of pages that wait, and of the one that the child has; None when it is over,
    whatever came of it."""

    def __init__(self, images: SavedImages | None) -> None:
        self._images = images
        self._waiting: deque[tuple[Page, Path, Deferred[None]]] = deque()
        self._sent: tuple[Page, Path, Deferred[None]] | None = None

    def add(self, page: Page, stem: Path) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        self._waiting.append((page, stem, done))
        return done

    def pump(self, child: ChildProcess | None, hot: set[int]) -> None:
        """`hot`: keys of pages whose image the child has; it makes that of any other for this."""
        if child is None or not child.is_ready or self._sent is not None or not self._waiting:
            return
        self._sent = self._waiting.popleft()
        page, stem, _ = self._sent
        child.send({"save": str(stem), "key": page.key}, b"" if page.key in hot else page.data)

    def answered(self, message: dict[str, Any]) -> int | None:
        """The key of a page that the child does not have after all: it is sent whole by the next
        `pump`."""
        sent, self._sent = self._sent, None
        if sent is not None and "missing" in message:
            self._waiting.appendleft(sent)
            return sent[0].key
        if self._images is not None:
            stem = Path(message["saved"])
            if message["reason"]:
                self._images.image_not_saved(stem, message["reason"])
            else:
                self._images.image_saved(stem, message["bytes"])
        if sent is not None:
            sent[2].callback(None)
        return None

    def ended(self) -> None:
        """The child has gone: perhaps because of what it saved, which is not tried again."""
        sent, self._sent = self._sent, None
        if sent is not None:
            sent[2].callback(None)
