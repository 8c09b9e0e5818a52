"""A term as the process builds it in extender mode.

Each test fails without the line of `scheduler/term_builder.py` or `scheduler/informers.py` that connects its part.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from allocation.names import CLAIM, QUEUE, RETRY
from allocation.settings import BindingSettings
from allocation.steps import finish
from scheduler.extender import wire
from tests.scheduler.support import builders as pods
from tests.scheduler.support import extending
from tests.scheduler.support.app_pods import app_labels
from tests.scheduler.support.terms import NAMESPACE, Cluster, leading

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

IN_NAMESPACE = {"namespace": NAMESPACE}
CREATED = [
    ("gpuclaims", {"metadata": {"name": "one", **IN_NAMESPACE}, "spec": {"devices": {"count": 1}}}),
    ("gpuqueues", {"metadata": {"name": "later"}, "spec": {"namespaceSelector": {}}}),
    ("gpubindings", {"metadata": {"name": "b"}, "spec": {"uuid": "GPU-n0-0", "appName": "app", "podSelector": {}}}),
    ("gpuquotas", {"metadata": {"name": "q", **IN_NAMESPACE}, "spec": {"total": {"maxPods": 1}}}),
    ("resourcequotas", {"metadata": {"name": "q", **IN_NAMESPACE}, "spec": {"hard": {"limits.nvidia.com/gpu": "1"}}}),
]


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


@asynccontextmanager
async def _rejected(cluster: Cluster) -> AsyncIterator[None]:
    """Lead a cluster with one card, which a pod holds that a more important one preempts once it was rejected."""
    cluster.node("n0", count=1)
    async with leading(cluster, extender=True):
        extender = cluster.term.extender
        assert extender is not None
        cluster.pod("low", memory=None)
        assert await extending.bound(extender, pods.pod("low"), "n0") == ""
        await cluster.until(lambda: "uid-low" in cluster.term.state.running, "running pod")
        cluster.pod("urgent", memory=None, priority=1000)
        assert not await has_node(cluster, "urgent")
        await cluster.wrote("POST", "/pods/low/eviction")
        yield


async def test_rejected_pod_preempts_in_extender_mode(cluster: Cluster) -> None:
    """Pods that kube-scheduler offered wait there, so those that were rejected last are looked at."""
    async with _rejected(cluster):
        assert cluster.term.state.holds.of("uid-urgent") is not None


async def test_hold_of_a_pod_that_is_being_deleted_ends(cluster: Cluster) -> None:
    """kube-scheduler does not place it any more; a finalizer may keep it, and with it the cards, for ever."""
    async with _rejected(cluster):
        holds = cluster.term.state.holds
        assert holds.of("uid-urgent") is not None
        urgent = cluster.shown("urgent")
        leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/kept"]}
        cluster.api.put("pods", {**urgent, "metadata": {**urgent["metadata"], **leaving}})
        await cluster.until(lambda: holds.of("uid-urgent") is None, "end of the hold")


@pytest.mark.parametrize(("kind", "created"), CREATED, ids=[kind for kind, _ in CREATED])
async def test_kube_scheduler_tries_a_pod_again_once_it_fits(
    cluster: Cluster, kind: str, created: dict[str, Any]
) -> None:
    """kube-scheduler watches neither these objects nor their limits, but the status of its pods, which is written."""
    meta: dict[str, Any] = {
        "gpuclaims": {"annotations": {CLAIM: "one"}},
        "gpuqueues": {"labels": {QUEUE: "later"}},
        "gpubindings": {"labels": app_labels("app")},
    }.get(kind, {})
    forbidding = {"gpuquotas": {"total": {"maxPods": 0}}, "resourcequotas": {"hard": {"limits.nvidia.com/gpu": "0"}}}
    if kind in forbidding:
        cluster.api.put(kind, {**created, "spec": forbidding[kind]})
    cluster.pod("p", memory=None, **meta)
    async with leading(cluster, extender=True, bindings=BindingSettings("labelled")):
        assert not await has_node(cluster, "p")
        cluster.api.put(kind, created)
        await cluster.wrote("PATCH", "/pods/p/status")
        (condition,) = cluster.shown("p")["status"]["conditions"]
        assert (condition["type"], condition["status"]) == (RETRY, "True")
        assert await has_node(cluster, "p")


async def test_pod_that_still_fits_nowhere_is_not_tried_again(cluster: Cluster) -> None:
    """Nothing is written for it, whatever changes: another queue than its own is created."""
    cluster.pod("p", labels={QUEUE: "mine"})
    cluster.pod("witness", labels={QUEUE: "other"})
    async with leading(cluster, extender=True):
        assert not await has_node(cluster, "p")
        assert not await has_node(cluster, "witness")
        cluster.api.put("gpuqueues", {"metadata": {"name": "other"}, "spec": {"namespaceSelector": {}}})
        await cluster.wrote("PATCH", "/pods/witness/status")
        assert ("PATCH", "/pods/p/status") not in {(verb, path[-14:]) for verb, path in cluster.api.requests}


async def test_pods_of_a_gang_are_bound_together(cluster: Cluster) -> None:
    """The first waits in `/bind`, as its explanation says; a pod that was rejected is tried again."""
    meta: dict[str, Any] = {
        "labels": {"gpu.scheduling/gang": "train"},
        "annotations": {"gpu.scheduling/gang-min-members": "2"},
    }
    async with leading(cluster, extender=True):
        extender = cluster.term.extender
        assert extender is not None
        cluster.pod("a", **meta)
        assert not await has_node(cluster, "a")
        cluster.pod("b", **meta)
        await cluster.wrote("PATCH", "/pods/a/status")
        assert await has_node(cluster, "b")
        first = asyncio.create_task(extending.bound(extender, pods.pod("b"), "n0"))
        await cluster.until(lambda: cluster.term.state.node_cache.node_of("uid-b") == "n0", "reserved cards")
        explanation = finish(cluster.term.queries.explain(NAMESPACE, "b"))
        assert explanation is not None
        assert explanation.answer.startswith("waits: gang default/train gathers: 1 of 2 pods have come to their nodes")
        (gang,) = finish(cluster.term.queries.gangs()).gangs
        assert (gang.name, gang.size) == ("train", 2)
        assert await extending.bound(extender, pods.pod("a"), "n0") == ""
        assert await first == ""
        assert cluster.shown("b")["spec"]["nodeName"] == "n0"


async def has_node(cluster: Cluster, name: str, node: str = "n0") -> bool:
    """Ask the extender whether a node takes a pod, as kube-scheduler does."""
    extender = cluster.term.extender
    assert extender is not None
    await cluster.until(lambda: cluster.term._informers.pods.get(name, NAMESPACE) is not None, "known pod")
    body = msgspec.json.encode({"Pod": cluster.shown(name), "Nodes": None, "NodeNames": (node,)})
    return (await extender.filter(wire.decode_args(body))).has_node
