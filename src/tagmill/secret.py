"""Django's signing key: from the environment, or made once and kept in the data directory."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile

from tagmill.config import Config
from tagmill.errors import ConfigurationError


def key(config: Config) -> str:
    """Raises ConfigurationError where there is none, and none can be kept."""
    if config.secret_key:
        return config.secret_key
    try:
        return _kept(config)
    except OSError as error:
        raise ConfigurationError(
            f"the signing key cannot be kept in {config.var} ({error.strerror}): make the directory"
            " writable, name another in TAGMILL_VAR, or give the key in TAGMILL_SECRET_KEY"
        ) from None


def _kept(config: Config) -> str:
    path = config.var / "secret_key"
    config.var.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        # Written whole under another name and linked: of two processes that start at once one
        # wins, and neither ever reads half a key.
        with tempfile.NamedTemporaryFile("w", dir=config.var, prefix=".secret_key-") as file:
            file.write(secrets.token_urlsafe(48))
            file.flush()
            with contextlib.suppress(FileExistsError):
                os.link(file.name, path)
    return path.read_text()
