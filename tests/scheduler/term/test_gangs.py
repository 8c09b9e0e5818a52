"""Gangs in a term as the process builds it, in loop mode and in extender mode.

Each test fails without the line of `scheduler/term_builder.py` that connects its part.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from allocation.steps import finish
from cluster.errors import ApiError
from scheduler.settings import GangSettings
from tests.scheduler.support import builders as pods
from tests.scheduler.support import extending
from tests.scheduler.support.terms import leading
from tests.scheduler.term.test_extender import has_node

if TYPE_CHECKING:
    from tests.scheduler.support.terms import Cluster


def gang(size: int = 2, **annotations: str) -> dict[str, Any]:
    """Return the metadata of a pod of a gang."""
    more = {f"gpu.scheduling/gang-{key}": value for key, value in annotations.items()}
    return {
        "labels": {"gpu.scheduling/gang": "train"},
        "annotations": {"gpu.scheduling/gang-min-members": str(size), **more},
    }


def pause(cluster: Cluster) -> float:
    """Return for how many seconds the gang pauses; 0 if it does not exist yet."""
    return max((each.pause_seconds for each in finish(cluster.term.queries.gangs()).gangs), default=0.0)


async def test_a_gang_preempts_as_one(cluster: Cluster) -> None:
    """Both pods of low priority go for it."""
    async with leading(cluster):
        for name in ("low-0", "low-1"):
            cluster.pod(name, memory=None)
            await cluster.placed(name)
        for name in ("a", "b"):
            cluster.pod(name, memory=None, priority=1000, **gang())
        await cluster.wrote("POST", "/pods/low-0/eviction")
        await cluster.wrote("POST", "/pods/low-1/eviction")


async def test_a_gang_whose_timeout_passes_is_reported_and_pauses(cluster: Cluster) -> None:
    """For as long as the settings say."""
    async with leading(cluster, gangs=GangSettings(backoff_seconds=77)):
        cluster.pod("a", **gang(timeout="1s"))
        await cluster.event("GangSchedulingTimeout", "pausing for 77 s")
        assert 70 < pause(cluster) <= 77


async def test_a_gang_pauses_after_a_refused_binding(cluster: Cluster) -> None:
    """For as long as the settings say."""

    def refuse(_method: str, path: str) -> None:
        if path.endswith("/pods/b/binding"):
            raise ApiError(request=path, status=403, reason="Forbidden", message="not this one")

    cluster.api.on_write = refuse
    async with leading(cluster, gangs=GangSettings(backoff_seconds=77)):
        for name in ("a", "b"):
            cluster.pod(name, **gang())
        await cluster.until(lambda: pause(cluster) > 0, "pause")
        assert pause(cluster) > 70


async def test_a_gang_of_kube_scheduler_is_tried_again_when_its_last_pod_may_fit(cluster: Cluster) -> None:
    """It fitted nowhere as a whole until there was a third card."""
    async with leading(cluster, extender=True):
        for name in ("a", "b", "c"):
            cluster.pod(name, memory=None, **gang(3))
        for name in ("a", "b", "c"):
            assert not await has_node(cluster, name)
        cluster.node("n1", count=1)
        await cluster.wrote("PATCH", "/pods/a/status")


async def test_a_gang_of_kube_scheduler_gathers_no_longer_than_the_settings_say(cluster: Cluster) -> None:
    """Its first pod is let go then."""
    async with leading(cluster, extender=True, gangs=GangSettings(gather_seconds=1)):
        extender = cluster.term.extender
        assert extender is not None
        for name in ("a", "b"):
            cluster.pod(name, **gang())
            await cluster.until(lambda name=name: f"uid-{name}" in _waiting(cluster), "known pod")
        assert await has_node(cluster, "a")
        begin = time.monotonic()
        assert "has not gathered in 1 s" in await extending.bound(extender, pods.pod("a"), "n0")
        assert time.monotonic() - begin < 15


async def test_no_pod_is_preempted_for_a_gang_of_kube_scheduler(cluster: Cluster) -> None:
    """A single pod of lower priority, which is looked at after the gang, preempts."""
    cluster.node("n0", count=1)
    cluster.node("n1", count=1)
    async with leading(cluster, extender=True):
        extender = cluster.term.extender
        assert extender is not None
        for name, node in (("low-0", "n0"), ("low-1", "n1")):
            cluster.pod(name, memory=None)
            assert await extending.bound(extender, pods.pod(name), node) == ""
            await cluster.until(lambda name=name: f"uid-{name}" in cluster.term.state.running, "running pod")
        for name in ("a", "b"):
            cluster.pod(name, memory=None, priority=2000, **gang())
        for name in ("a", "b"):
            assert not await has_node(cluster, name)
        cluster.pod("urgent", memory=None, priority=1000, nodeSelector={"kubernetes.io/hostname": "n1"})
        assert not await has_node(cluster, "urgent", "n1")
        await cluster.wrote("POST", "/pods/low-1/eviction")
        assert not any(path.endswith("/pods/low-0/eviction") for _, path in cluster.api.requests)


def _waiting(cluster: Cluster) -> list[str]:
    return [uid for each in cluster.term.state.gangs for uid in each.waiting]
