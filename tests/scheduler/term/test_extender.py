"""A term as the process builds it in extender mode.

Each test fails without the line of `scheduler/term_builder.py` or `scheduler/informers.py` that connects its part.
"""

from __future__ import annotations

import msgspec

from scheduler.extender import wire
from tests.scheduler.support import builders as pods
from tests.scheduler.support import extending
from tests.scheduler.support.terms import NAMESPACE, Cluster, leading


async def test_kube_scheduler_filters_and_binds(cluster: Cluster) -> None:
    """Also a pod that the watch has not shown yet; its pods are in no queue of ours."""
    async with leading(cluster, extender=True):
        extender = cluster.term.extender
        assert extender is not None
        cluster.pod("p")
        pod = pods.pod("p", memory=100)
        assert extending.scored(extender, pod, "n0")["n0"] > 0
        cluster.api.late.add("pods")
        cluster.pod("late")
        for name in ("p", "late"):
            assert await extending.bound(extender, pods.pod(name), "n0") == ""
            assert cluster.shown(name)["spec"]["nodeName"] == "n0"
        assert len(cluster.term.state.queue) == 0
        cluster.pod("foreign", schedulerName="other")
        assert "its schedulerName is other" in await extending.bound(extender, pods.pod("foreign"), "n0")
        assert extender.is_trusted
        cluster.is_trusted = False
        assert not extender.is_trusted


async def test_rejected_pod_preempts_in_extender_mode(cluster: Cluster) -> None:
    """Pods that kube-scheduler offered wait there, so those that were rejected last are looked at."""
    cluster.node("n0", count=1)
    async with leading(cluster, extender=True):
        extender = cluster.term.extender
        assert extender is not None
        cluster.pod("low", memory=None)
        assert await extending.bound(extender, pods.pod("low"), "n0") == ""
        await cluster.until(lambda: "uid-low" in cluster.term.state.running, "running pod")
        cluster.pod("urgent", memory=None, priority=1000)
        await cluster.until(lambda: cluster.term._informers.pods.get("urgent", NAMESPACE) is not None, "known pod")
        limits = {"nvidia.com/gpu": "1"}
        containers = [{"name": "main", "resources": {"limits": limits, "requests": limits}}]
        urgent = pods.pod("urgent", priority=1000, containers=containers)
        body = msgspec.json.encode({"Pod": urgent, "Nodes": None, "NodeNames": ("n0",)})
        assert not (await extender.filter(wire.decode_args(body))).has_node
        await cluster.wrote("POST", "/pods/low/eviction")
