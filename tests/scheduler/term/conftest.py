"""The cluster on which a term runs."""

from __future__ import annotations

import pytest

from tests.scheduler.support.terms import Cluster


@pytest.fixture
def cluster() -> Cluster:
    """A cluster with one node of two cards."""
    made = Cluster()
    made.node("n0")
    return made
