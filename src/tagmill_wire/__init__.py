"""What server and workers share. Imports nothing of Tagmill's own.

- `messages`: the messages between them.
- `bitmap`: sets of slots.
- `pagehead`: the head of a page of a partition.
- `sizes`: sizes as people write them.
- `streams`: standard input, output and error, of any process.
- `zstd`: compressed bodies, unpacked within a bound.
"""

__all__ = ["__version__", "bitmap", "messages", "pagehead", "sizes", "streams", "zstd"]

__version__ = "0.1.0"
"""Tagmill's version. The kernel's crate and the protocol (`messages.VERSION`) have their own."""
