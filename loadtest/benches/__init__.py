"""The subcommands of `manage.py bench`, a module each."""

__all__ = [
    "attack",
    "batch",
    "batch_fleet",
    "batch_reads",
    "cache",
    "calibrate",
    "change",
    "check",
    "churn",
    "evaluate",
    "fleet",
    "growth",
    "lists",
    "polls",
    "preview",
    "rebuild",
    "sweep",
    "tiers",
    "turnover",
    "web",
]
