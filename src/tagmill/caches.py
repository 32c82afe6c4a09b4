"""Where the caches are that server processes share: of counters, the database or
`TAGMILL_CACHE_URL`; of bodies, memcached or Redis, or nowhere."""

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


# Django's alias of the cache that bodies are shared in.
BODIES = "bodies"


def django_settings(config: Config) -> dict[str, Any]:
    """Django's CACHES. Raises ConfigurationError, which does not repeat a URL: it may hold a
    password."""
    found = {"default": _counters(config)}
    if config.body_cache_url and config.cache_servers:
        raise ConfigurationError(
            "TAGMILL_BODY_CACHE_URL and TAGMILL_CACHE_SERVERS are two ways to share bodies: unset"
            " one of them"
        )
    if config.body_cache_url:
        found[BODIES] = _shared_bodies(config)
    if config.cache_servers:
        if find_spec("pymemcache") is None:
            raise ConfigurationError("TAGMILL_CACHE_SERVERS needs `pip install pymemcache`")
        from tagmill import cache_members

        cache_members.check(config.cache_servers)
        found[BODIES] = {
            "BACKEND": "tagmill.local_first.LocalFirstCache",
            "LOCATION": config.cache_servers,
            "KEY_PREFIX": "tagmill",
            "OPTIONS": {"seconds": config.cache_server_seconds},
        }
    return found


def has_bodies(config: Config) -> bool:
    """Whether bodies are shared."""
    return bool(config.body_cache_url or config.cache_servers)


class Raw:
    """Bytes as they are: nothing that comes from a cache server is ever unpickled. As Django's
    Redis client and pymemcache want it."""

    def dumps(self, value: bytes) -> bytes:
        return value

    def loads(self, data: bytes) -> bytes:
        return data

    def serialize(self, key: str, value: bytes) -> tuple[bytes, int]:
        return value, 0

    def deserialize(self, key: str, value: bytes, flags: int) -> bytes:
        return value


def _counters(config: Config) -> dict[str, Any]:
    if not config.cache_url:
        return {
            "BACKEND": "tagmill.shared_cache.SharedDatabaseCache",
            "LOCATION": "cache_entry",
            "OPTIONS": {"MAX_ENTRIES": MAX_ENTRIES},
        }
    return _located(config.cache_url, "TAGMILL_CACHE_URL", "the counters in the database")


def _shared_bodies(config: Config) -> dict[str, Any]:
    found = _located(
        config.body_cache_url, "TAGMILL_BODY_CACHE_URL", "bodies in each process alone"
    )
    seconds = config.cache_server_seconds
    if found["BACKEND"].endswith("PyMemcacheCache"):
        options = {"serde": Raw(), "connect_timeout": seconds, "timeout": seconds, "no_delay": True}
    else:
        options = {
            "serializer": Raw,
            "socket_connect_timeout": seconds,
            "socket_timeout": seconds,
        }
    return {**found, "OPTIONS": options}


def _located(text: str, setting: str, otherwise: str) -> dict[str, Any]:
    url = urlsplit(text)
    if url.scheme not in BACKENDS or not url.hostname:
        raise ConfigurationError(
            f"{setting} must be redis://host:6379/0, rediss://... or memcached://host:11211"
        )
    backend, library = BACKENDS[url.scheme]
    if find_spec(library) is None:
        raise ConfigurationError(
            f"{setting} needs a library: run `pip install {library}`, or unset it to keep"
            f" {otherwise}"
        )
    is_memcached = url.scheme == "memcached"
    place = f"{url.hostname}:{url.port or 11211}" if is_memcached else text
    return {"BACKEND": backend, "LOCATION": place, "KEY_PREFIX": "tagmill"}
