"""The signing key that a process begins with. Servers then take the one that the database keeps
(`api.signing`), so that all of them sign, and believe, the same; commands sign nothing."""

from __future__ import annotations

import contextlib
import secrets

from tagmill.config import Config

# The name of the file in the data directory where the key was kept before the database had it.
FILE = "secret_key"


def key(config: Config) -> str:
    """The one that is given, or that the data directory has, or a new one."""
    if config.secret_key:
        return config.secret_key
    with contextlib.suppress(OSError):
        if kept := (config.var / FILE).read_text().strip():
            return kept
    return secrets.token_urlsafe(48)
