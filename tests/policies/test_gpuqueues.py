"""GpuQueues decide who pays for a pod's cards: they belong to the cluster, and no role in a namespace includes them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from cluster.resource import GPU_QUEUES
from lab.client import client
from tests.support import identities
from tests.support.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
TEAM = "policies"


def queue(name: str) -> dict[str, Any]:
    """Return a GpuQueue."""
    head = {"apiVersion": GPU_QUEUES.api_version, "kind": GPU_QUEUES.kind}
    return {**head, "metadata": {"name": name}, "spec": {}}


@pytest.fixture
def team(server: Layout) -> Iterator[str]:
    """A queue of an administrator."""
    client(server).apply(queue(TEAM))
    yield TEAM
    client(server).delete("gpuqueue", TEAM)


@pytest.mark.parametrize("role", ["edit", "admin"])
def test_rights_in_a_namespace_are_not_enough_to_write_queues(
    server: Layout, namespace: str, team: str, role: str
) -> None:
    """Who may do everything in a namespace creates no queue, and gives none more weight, another tier or reclaim."""
    api = identities.tenant(server, namespace, role=role)
    assert "forbidden" in refusal(lambda: api.create(queue("own")))
    for spec in ({"weight": 10000}, {"priority": 9}, {"namespaceSelector": {}}, {"reclaim": "Always"}):
        assert "forbidden" in refusal(partial(api.patch, "gpuqueue", team, {"spec": spec}))
    assert "forbidden" in refusal(lambda: api.delete("gpuqueue", team, wait=False))
