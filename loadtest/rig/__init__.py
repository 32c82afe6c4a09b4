"""What a bench runs: a scratch database, a server, workers, and clients."""

__all__ = [
    "behaviour",
    "changes",
    "clients",
    "cold",
    "definitions",
    "generator",
    "http",
    "ingest",
    "postgres",
    "processes",
    "readers",
    "relay",
    "rig",
    "scratch",
    "simulated",
    "stack",
]
