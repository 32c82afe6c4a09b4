"""Sizes as people write them in settings."""

from __future__ import annotations

import pytest

from tagmill_wire.sizes import size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1048576", 1 << 20),
        ("7b", 7),
        ("2k", 2_000),
        ("2 kB", 2_000),
        ("3m", 3_000_000),
        ("3MB", 3_000_000),
        ("4g", 4_000_000_000),
        (" 4 GB ", 4_000_000_000),
        ("5KiB", 5 << 10),
        ("6mib", 6 << 20),
        ("7 GiB", 7 << 30),
    ],
)
def test_a_size_takes_units(text: str, expected: int) -> None:
    assert size(text) == expected


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1.5MB", "1TB", "64 MiB each", "9" * 19])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="1048576 or 64MiB"):
        size(text)
