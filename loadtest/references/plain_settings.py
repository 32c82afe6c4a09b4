"""The settings of a server that answers the plain view, too."""

from __future__ import annotations

from tagmill.settings import *  # noqa: F403

ROOT_URLCONF = "loadtest.references.plain_drf"
