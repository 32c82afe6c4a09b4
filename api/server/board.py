"""What the processes of one server tell each other: a few numbers of each, in shared memory.

A slot is one process's, and its successor's. The process alone writes its connections, the parent
writes everything else; everybody reads. Each number is one aligned word: none is ever read torn.
"""

from __future__ import annotations

import mmap
from pathlib import Path

CONNECTIONS, PID, RESTARTS = range(3)
FIELDS = 3
WORD = 8
# The connections of a process that does not accept any: it starts, or has ended.
AWAY = -1


class Board:
    """Slots count from 1, as the processes do in the log; 0 is the parent's."""

    def __init__(self, path: Path, slots: int) -> None:
        size = (slots + 1) * FIELDS * WORD
        with path.open("r+b") as file:
            self._words = memoryview(mmap.mmap(file.fileno(), size)).cast("q")
        self.slots = range(1, slots + 1)

    @classmethod
    def made(cls, path: Path, slots: int) -> Board:
        path.write_bytes(bytes((slots + 1) * FIELDS * WORD))
        board = cls(path, slots)
        for slot in board.slots:
            board.set(slot, CONNECTIONS, AWAY)
        return board

    def get(self, slot: int, field: int) -> int:
        return self._words[slot * FIELDS + field]

    def set(self, slot: int, field: int, value: int) -> None:
        self._words[slot * FIELDS + field] = value

    def pids(self) -> dict[int, int]:
        """By slot, of the processes that live, the parent among them."""
        found = {slot: self.get(slot, PID) for slot in (0, *self.slots)}
        return {slot: pid for slot, pid in found.items() if pid}


class Slot:
    """One process's place on the board."""

    def __init__(self, board: Board, number: int) -> None:
        self.board = board
        self.number = number

    @property
    def connections(self) -> int:
        return self.board.get(self.number, CONNECTIONS)

    @connections.setter
    def connections(self, count: int) -> None:
        self.board.set(self.number, CONNECTIONS, count)

    @property
    def all_connections(self) -> int:
        return sum(max(0, self.board.get(slot, CONNECTIONS)) for slot in self.board.slots)

    @property
    def is_ahead(self) -> bool:
        """Whether another process that accepts has fewer connections."""
        found = (self.board.get(slot, CONNECTIONS) for slot in self.board.slots)
        return self.connections > min((count for count in found if count != AWAY), default=0)
