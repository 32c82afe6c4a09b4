"""The HTTP API: resources in `rest`, the admin site, and the Twisted server in `server`.

The modules here are what `rest`, `server` and the admin site share. Other
packages may use `roles`, and `tokens`, which issues the tokens of users.
"""

__all__ = ["roles", "tokens"]
