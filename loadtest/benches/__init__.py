"""The subcommands of `manage.py bench`, a module each."""

__all__ = [
    "calibrate",
    "check",
    "evaluate",
    "fleet",
    "growth",
    "polls",
    "preview",
    "rebuild",
    "sweep",
]
