"""The warm tier: what a worker holds, as files on its own disk, for the next time it starts.

- `shared`: what other workers left with the server.
- `start`: makes the `tier` that the options ask for.
- `bundle`: a partition in one body, as workers share it.
- `files`: the format, and what makes a file believed.
- `command`: `tagmill-worker cache`.
"""

__all__ = ["bundle", "command", "files", "shared", "start", "tier"]
