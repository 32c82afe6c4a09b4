"""What another process has compressed, unpacked within a bound."""

from __future__ import annotations

import zstandard

# As the zstd command takes without being asked to; a larger window is memory that a header demands.
MAX_WINDOW_BYTES = 1 << 27


class TooLarge(ValueError):
    """The header declares more bytes than the bound."""


def check_size(data: bytes, most_bytes: int) -> None:
    """Raises TooLarge where `unpack` would, and ValueError for what does not begin as zstd. Only a
    frame whose header declares no size is unpacked for it."""
    if _declared(data, most_bytes) is None:
        unpack(data, most_bytes)


def unpack(
    data: bytes, most_bytes: int, decompressor: zstandard.ZstdDecompressor | None = None
) -> bytes:
    """The one frame that `data` is, `most_bytes` at most. Raises TooLarge, and ValueError for what
    is not zstd. `decompressor`: what `decompressor_of` made of a dictionary.

    python-zstandard takes the size that a header declares for true, whatever `max_output_size`
    says, and allocates it before a byte is read: so the header is looked at first.
    """
    _declared(data, most_bytes)
    try:
        plain: bytes = (decompressor or decompressor_of(None)).decompress(
            data, max_output_size=most_bytes, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise ValueError(f"not zstd: {error}") from None
    return plain


def decompressor_of(
    dictionary: zstandard.ZstdCompressionDict | None,
) -> zstandard.ZstdDecompressor:
    """Not to be used by two threads at a time."""
    return zstandard.ZstdDecompressor(dict_data=dictionary, max_window_size=MAX_WINDOW_BYTES)


def _declared(data: bytes, most_bytes: int) -> int | None:
    """The size that the header declares, if any."""
    try:
        size: int = zstandard.get_frame_parameters(data).content_size
    except zstandard.ZstdError as error:
        raise ValueError(f"not zstd: {error}") from None
    if size == zstandard.CONTENTSIZE_UNKNOWN:
        return None
    if size > most_bytes:
        raise TooLarge(f"{size} bytes; {most_bytes} is the limit")
    return size
