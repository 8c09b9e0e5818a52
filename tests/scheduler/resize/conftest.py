"""A cluster whose pods can be resized."""

from __future__ import annotations

import pytest

from tests.scheduler.support.resizing import Resizing


@pytest.fixture
def cluster() -> Resizing:
    """A cluster with one node of two cards of 1000 MiB."""
    made = Resizing()
    made.node("n0")
    return made
