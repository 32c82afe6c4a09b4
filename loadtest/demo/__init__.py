"""`manage.py demo`, a Django app of its own: it needs no more than the server does.

`state` is what it keeps between runs.
"""

__all__ = ["state"]
