"""Python's collector of cycles, and what a process makes at its start.

A start makes some 150,000 objects, nearly all of them modules and classes that stay. By Python's
own thresholds the collector goes through them again and again while they become more: a sixth of a
start's CPU time, for nothing; a tenth where it does so once.
"""

from __future__ import annotations

import gc

# No start reaches it.
MAX_YOUNG = 300_000
DEFAULT = gc.get_threshold()


def starting() -> None:
    """Collect rarely. For a command, which ends soon, also while it runs."""
    gc.set_threshold(MAX_YOUNG)


def started() -> None:
    """Collect as always, but never look at what is there by now. For what runs on."""
    gc.freeze()
    gc.set_threshold(*DEFAULT)
