"""Django's signing key: from the environment, or made once and kept in the data directory."""

from __future__ import annotations

import os
import secrets

from tagmill.config import Config


def key(config: Config) -> str:
    if config.secret_key:
        return config.secret_key
    path = config.var / "secret_key"
    config.var.mkdir(parents=True, exist_ok=True)
    try:
        # O_EXCL: of two processes that start at once, one writes and both read the same key.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(48))
    except FileExistsError:
        pass
    return path.read_text()
