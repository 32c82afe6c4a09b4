"""How many threads a server process has, for what, and so how many database connections."""

from __future__ import annotations

from tagmill.config import Config

# Lease attempts, batch reads and checks of tokens: short, and apart from the REST requests.
NATIVE_THREADS = 8
# What keeps leases alive has threads of its own: however slow REST requests, completions and batch
# reads are, a heartbeat finds one, and so does a completion.
HEARTBEAT_THREADS = 4
COMPLETION_THREADS = 4
# One stores all uploads that have arrived; where it must wait for long, the others go on.
UPLOAD_THREADS = 4
# The image store may be slow: nobody else waits for it.
IMAGE_THREADS = 4
# An import is bound by the database; a third one waits, with its client's socket unread. For all
# processes of a server together, but one for each. Each has a second connection, by which it looks
# at the lines that come next.
IMPORT_THREADS = 2
# Procrastinate's pool, and the thread that its tasks run in.
MAINTENANCE_CONNECTIONS = 5


def sizes(config: Config) -> dict[str, int]:
    """The threads of one process, by the name of their pool."""
    return {
        "rest": config.threads,
        "native": NATIVE_THREADS,
        "heartbeat": HEARTBEAT_THREADS,
        "complete": COMPLETION_THREADS,
        "import": config.part(IMPORT_THREADS),
        "upload": UPLOAD_THREADS,
        "image": IMAGE_THREADS,
    }


def connections(config: Config, run_maintenance: bool) -> int:
    """The most connections to the database of all processes together: one for each thread and a
    second one for each import, one for each process that listens, and those of the periodic tasks,
    which one of them runs."""
    threads = sizes(config)
    each = sum(threads.values()) + threads["import"] + 1
    return config.processes * each + (MAINTENANCE_CONNECTIONS if run_maintenance else 0)
