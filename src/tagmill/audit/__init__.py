"""Who changed what, and when.

Triggers write the events, whatever makes the change. `acting` says who acts, `trail` records what
no trigger sees and reads the events, `models` has the table.
"""

__all__ = ["acting", "models", "trail"]
