"""The address that a server listens on."""

from __future__ import annotations

from typing import Any

from tagmill.errors import ConfigurationError

# As many workers may connect at once; the kernel's default of 50 would make some of them try again.
BACKLOG = 1024


def cannot_listen(listen: str, error: Any) -> ConfigurationError:
    reason = getattr(error, "strerror", None) or error
    return ConfigurationError(
        f"cannot listen on {listen} ({reason}): choose another address with "
        "TAGMILL_LISTEN or --listen ADDRESS:PORT"
    )


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
