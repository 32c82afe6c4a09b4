"""The API server: Twisted Web in front of Django.

REST and admin requests go to Django in a thread pool; what waits or streams is native and holds no
thread: long-polls (`broker`), event streams (`events`), batches (`batches`), imports (`imports`).
`manage.py serve` uses `health`, `logs`, `running` and `threads`; nothing else uses this package.
"""

__all__ = ["app", "health", "logs", "running", "threads"]
