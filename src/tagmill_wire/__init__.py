"""What server and workers share. Imports nothing of Tagmill's own.

- `frames`: batches with their documents as they are at rest.
- `messages`: the messages between them.
- `bitmap`: sets of slots.
- `collector`: Python's collector of cycles, at the start of a process.
- `images`: the names of shared images.
- `pagehead`: the head of a page of a partition.
- `sets`: bitmaps over an expression set.
- `sizes`: sizes as people write them.
- `streams`: standard input, output and error, of any process.
- `tracing`: traces by OpenTelemetry, where they are on.
- `zstd`: compressed bodies, unpacked within a bound.
"""

__all__ = [
    "__version__",
    "bitmap",
    "collector",
    "frames",
    "images",
    "messages",
    "pagehead",
    "sets",
    "sizes",
    "streams",
    "tracing",
    "zstd",
]

__version__ = "0.1.0"
"""Tagmill's version: that of all wheels, and of the kernel's crate. The protocol has its own
(`messages.VERSION`)."""
