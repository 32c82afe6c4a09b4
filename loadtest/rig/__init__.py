"""What a bench runs: a scratch database, a server, workers, and clients."""

__all__ = [
    "changes",
    "clients",
    "definitions",
    "http",
    "ingest",
    "postgres",
    "processes",
    "rig",
    "scratch",
    "simulated",
    "stack",
]
