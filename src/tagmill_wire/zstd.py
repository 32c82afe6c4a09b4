"""What another process has compressed, unpacked within a bound."""

from __future__ import annotations

import zstandard

# As the zstd command takes without being asked to; a larger window is memory that a header demands.
MAX_WINDOW_BYTES = 1 << 27


class TooLarge(ValueError):
    """The header declares more bytes than the bound."""


def unpack(data: bytes, most_bytes: int) -> bytes:
    """The one frame that `data` is, `most_bytes` at most. Raises TooLarge, and ValueError for what
    is not zstd.

    python-zstandard takes the size that a header declares for true, whatever `max_output_size`
    says, and allocates it before a byte is read: so the header is looked at first.
    """
    try:
        size = zstandard.get_frame_parameters(data).content_size
        if size != zstandard.CONTENTSIZE_UNKNOWN and size > most_bytes:
            raise TooLarge(f"{size} bytes; {most_bytes} is the limit")
        plain: bytes = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES).decompress(
            data, max_output_size=most_bytes, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise ValueError(f"not zstd: {error}") from None
    return plain
