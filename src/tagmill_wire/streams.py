"""The descriptors that every process is meant to have."""

from __future__ import annotations

import os

STANDARD = (0, 1, 2)


def hold_standard() -> None:
    """Open /dev/null in the place of each standard stream that is closed, as after `2>&-`. The next
    socket would get its number, and what is meant for the log would be sent to a client."""
    for number in STANDARD:
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free: those below are taken by now.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
