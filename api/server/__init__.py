"""The API server: Twisted Web in front of Django.

REST and admin requests go to Django in a thread pool; what waits or streams is native and holds no
thread: long-polls (`broker`), event streams (`events`), batches (`batches`), imports (`imports`).
"""
