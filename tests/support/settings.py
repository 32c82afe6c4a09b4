"""The settings of the tests, and of the commands and servers that they start."""

from __future__ import annotations

from tagmill.settings import *  # noqa: F403

# As many passwords are guessed as the limits allow, and each guess would cost a third of a second.
PASSWORD_HASHERS = ["tests.support.hashing.Quick"]
