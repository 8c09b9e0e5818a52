"""What the agent asks the API server about its node, and what it takes for an answer."""

from __future__ import annotations

from typing import Any

import pytest

from agent.dra.node_view import NodeView
from tests.agent.support.dra_node import NODE, result
from tests.scheduler.support.memory_api import MemoryApi

LEADER = {"epoch": 7, "identity": "replica-a"}


class Server(MemoryApi):
    """An API server with a version."""

    version: tuple[str, str] = ("1", "37")

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Serve the version, or anything else."""
        if path == "/version":
            return b'{"major": "%b", "minor": "%b"}' % (self.version[0].encode(), self.version[1].encode())
        return await super().request(method, path, **how)


def lead(api: MemoryApi, **leader: Any) -> None:
    """Write who leads."""
    metadata = {"name": "tranche-scheduler", "namespace": "tranche-system"}
    api.put("leaderships", {"metadata": metadata, "spec": leader})


def confirm(api: MemoryApi, drain: str, leader: str) -> None:
    """Write a confirmation."""
    drained = {"drained": {"drain": drain, "leader": leader}} if drain else {}
    api.put("gpunodestatuses", {"metadata": {"name": NODE}, "spec": {"nodeName": NODE, **drained}})


async def test_only_the_leader_of_this_moment_confirms_a_drain() -> None:
    """A former leader may not know which pods the present one places, nor this one of a drain before its term."""
    api = Server()
    view = NodeView(api, NODE)
    assert not await view.is_confirmed("d")
    confirm(api, "d", "7/replica-a")
    assert not await view.is_confirmed("d")
    lead(api, **LEADER)
    assert await view.is_confirmed("d")
    assert not await view.is_confirmed("")
    for drain, token in (("d", "6/replica-a"), ("d", "7/replica-b"), ("earlier", "7/replica-a"), ("", "")):
        confirm(api, drain, token)
        assert not await view.is_confirmed("d")
    confirm(api, "d", "7/replica-a")
    lead(api, epoch=8, identity="replica-b")
    assert not await view.is_confirmed("d")


@pytest.mark.parametrize(
    ("version", "is_supported"),
    [(("1", "35"), False), (("1", "36"), True), (("1", "37+"), True), (("2", "0"), True), (("", ""), False)],
)
async def test_cluster_needs_a_kube_scheduler_that_shares_devices(
    version: tuple[str, str], *, is_supported: bool
) -> None:
    """The reason names what is needed and what was found."""
    api = Server()
    api.version = version
    why = await NodeView(api, NODE).unsupported()
    assert bool(why) != is_supported
    assert is_supported or "needs Kubernetes 1.36" in why


@pytest.mark.parametrize(
    ("annotations", "is_allocated"),
    [
        ({}, False),
        ({"gpu.scheduling/resreq": "gpu=1"}, False),
        ({"gpu.scheduling/allocation": "unreadable"}, True),
        ({"hami.io/vgpu-devices-allocated": "x"}, True),
    ],
)
async def test_pod_of_the_ledger_is_found(annotations: dict[str, str], *, is_allocated: bool) -> None:
    """By the record of its allocation, ours or HAMi's, whether it can be read or not."""
    api = Server()
    api.put("pods", {"metadata": {"name": "p", "namespace": "team", "annotations": annotations}})
    assert await NodeView(api, NODE).allocated_pod() == ("team/p" if is_allocated else "")


async def test_claims_are_those_with_cards_of_the_node() -> None:
    """Others have devices of other nodes or drivers, or none yet."""
    api = Server()
    for name, results in {
        "own": [result()],
        "other-node": [{**result(), "pool": "n2"}],
        "other-driver": [{**result(), "driver": "rdma.example.com"}],
        "waits": [],
    }.items():
        status = {"allocation": {"devices": {"results": results}}} if results else {}
        api.put("resourceclaims", {"metadata": {"name": name, "namespace": "team"}, "status": status})
    assert [each.metadata.name for each in await NodeView(api, NODE).claims()] == ["own"]


async def test_slice_is_written_read_and_withdrawn() -> None:
    """Withdrawing one that does not exist is not an error: the kubelet may have deleted it."""
    view = NodeView(Server(), NODE)
    assert await view.slice() is None
    await view.write_slice({"metadata": {"name": f"gpu.scheduling-{NODE}", "uid": "u"}, "spec": {"driver": "x"}})
    found = await view.slice()
    assert found is not None
    assert found["spec"] == {"driver": "x"}
    for _ in range(2):
        await view.withdraw_slice()
        assert await view.slice() is None
