"""Every test that needs SQL runs on a real PostgreSQL: DATABASE_URL's, or an embedded one."""

from __future__ import annotations

import os

from tagmill import config, database


def pytest_configure() -> None:
    from django.conf import settings

    # pytest-django has read the settings before this module could start the embedded server.
    entry = settings.DATABASES["default"]
    entry.update(database.django_settings(config.load()))
    # Concurrent runs on one server may each name a test database of their own.
    name = os.environ.get("TAGMILL_TEST_DB", "tagmill")
    entry.setdefault("TEST", {})["NAME"] = f"test_{name}"


database.ensure_running(config.load())
