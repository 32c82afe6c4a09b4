"""What server and workers share: the messages between them, bitmaps, compression."""

__version__ = "0.1.0"
"""Tagmill's version. The kernel's crate and the protocol (`messages.VERSION`) have their own."""
