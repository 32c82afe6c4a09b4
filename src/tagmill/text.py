"""Text that workers and clients sent, made fit to be stored and shown."""

from __future__ import annotations


def readable(text: str, most: int) -> str:
    """One line of printable characters, at most so many; without the full stop at its end."""
    line = "".join(character if character.isprintable() else " " for character in text)
    return line[:most].rstrip(". ")
