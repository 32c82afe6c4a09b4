"""The warm tier: what a worker holds, as files on its own disk, for the next time it starts.

- `shared`: what other workers left with the server.
- `draining`, `entries`, `flushing`, `folders`: what is there, what of it is dirty, and sharing it.
- `start`: makes the `tier` that the options ask for.
- `bundle`: a partition in one body, as workers share it.
- `files`: the format, and what makes a file believed.
- `command`: `tagmill-worker cache`.
"""

__all__ = [
    "bundle",
    "command",
    "draining",
    "entries",
    "files",
    "flushing",
    "folders",
    "shared",
    "start",
    "tier",
]
