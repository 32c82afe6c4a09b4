"""The subcommands of `manage.py bench`, a module each."""

__all__ = [
    "calibrate",
    "change",
    "check",
    "evaluate",
    "fleet",
    "growth",
    "polls",
    "preview",
    "rebuild",
    "sweep",
    "web",
]
