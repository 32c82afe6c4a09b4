"""What a bench runs: a scratch database, a server, workers, and clients."""

__all__ = [
    "behaviour",
    "changes",
    "clients",
    "definitions",
    "generator",
    "http",
    "ingest",
    "postgres",
    "processes",
    "relay",
    "rig",
    "scratch",
    "simulated",
    "stack",
]
