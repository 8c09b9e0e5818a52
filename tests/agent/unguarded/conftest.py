"""Agents on a control plane without Tranche's policies: their tests write what else only the scheduler may write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.agent.conftest import with_agents

if TYPE_CHECKING:
    from lab.layout import Layout


@pytest.fixture(scope="module")
def cluster(empty_cluster: Layout) -> Layout:
    """The control plane with the CRD, the namespace and the agent's permissions, and no policies."""
    return with_agents(empty_cluster)
