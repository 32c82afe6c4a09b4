"""Where the cache is that all server processes share: the database, or `TAGMILL_CACHE_URL`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from tagmill.config import Config
from tagmill.errors import ConfigurationError

# Live entries of the database's cache. More addresses than these in a minute lose some counts.
MAX_ENTRIES = 10_000
# By scheme: the backend, and the library that it needs, which requirements.txt leaves out.
BACKENDS = {
    "redis": ("django.core.cache.backends.redis.RedisCache", "redis"),
    "rediss": ("django.core.cache.backends.redis.RedisCache", "redis"),
    "memcached": ("django.core.cache.backends.memcached.PyMemcacheCache", "pymemcache"),
}


def django_settings(config: Config) -> dict[str, Any]:
    """Django's CACHES entry. Raises ConfigurationError, which does not repeat the URL: it may hold
    a password."""
    if not config.cache_url:
        return {
            "BACKEND": "tagmill.shared_cache.SharedDatabaseCache",
            "LOCATION": "cache_entry",
            "OPTIONS": {"MAX_ENTRIES": MAX_ENTRIES},
        }
    url = urlsplit(config.cache_url)
    if url.scheme not in BACKENDS or not url.hostname:
        raise ConfigurationError(
            "TAGMILL_CACHE_URL must be redis://host:6379/0, rediss://... or memcached://host:11211"
        )
    backend, library = BACKENDS[url.scheme]
    if find_spec(library) is None:
        raise ConfigurationError(
            f"TAGMILL_CACHE_URL needs a library: run `pip install {library}`, or unset it to keep"
            " the counters in the database"
        )
    is_memcached = url.scheme == "memcached"
    place = f"{url.hostname}:{url.port or 11211}" if is_memcached else config.cache_url
    return {"BACKEND": backend, "LOCATION": place, "KEY_PREFIX": "tagmill"}
