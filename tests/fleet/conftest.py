"""Two clusters, for tests that move nodes and put them where they are told."""

from __future__ import annotations

import pytest

from tagmill.fleet import clusters
from tagmill.fleet.models import Cluster


@pytest.fixture
def north(db: None) -> Cluster:
    return clusters.create("north")


@pytest.fixture
def south(db: None) -> Cluster:
    return clusters.create("south")
