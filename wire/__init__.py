"""What server and workers share: the messages between them, bitmaps, compression."""

__version__ = "0.1.0"
"""Of Tagmill, all of it but the kernel's crate. The protocol's own is `wire.messages.VERSION`."""
