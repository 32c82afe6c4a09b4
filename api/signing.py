"""The one key that all servers of a database sign with: sessions, and what the admin remembers."""

from __future__ import annotations

import os

from django.conf import settings

from api.models import SigningKey
from tagmill.config import Config, load


def share(config: Config) -> None:
    """Sign with the key that the database keeps. The first server of all stores the one that it
    has; processes that this one starts inherit it. A key that is given in TAGMILL_SECRET_KEY stays.
    """
    if config.secret_key:
        return
    stored, _ = SigningKey.objects.get_or_create(pk=1, defaults={"key": settings.SECRET_KEY})
    os.environ["TAGMILL_SECRET_KEY"] = settings.SECRET_KEY = stored.key
    load.cache_clear()
