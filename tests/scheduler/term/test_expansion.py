"""A term as the process builds it: the nodes that it has autoscalers bring.

Each test fails without the line of `scheduler/term_builder.py`, `scheduler/term.py` or `scheduler/informers.py` that
connects the expander.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from allocation.inventory import Card
from allocation.names import FENCED_LABEL, LEADER, PLACEHOLDER
from allocation.steps import finish
from scheduler.expander_settings import ExpanderSettings
from tests.scheduler.support.memory_api import refusing
from tests.scheduler.support.node_manifests import of_node
from tests.scheduler.support.terms import TOKEN, Cluster, leading
from tests.scheduler.term.test_extender import has_node

SYSTEM = "tranche-system"
PLACEHOLDERS = f"/namespaces/{SYSTEM}/pods"
POOL = {"cloud.google.com/gke-nodepool": "gpus"}
GROUP = {"name": "gpus", "labels": POOL, "cards": 2, "memory_mib": 1000}


def expanding(**more: Any) -> ExpanderSettings:
    """Return settings with which nothing takes long; the timestamps of the API server in memory are old."""
    fields = {"enabled": True, "collect_seconds": 0.02, "node_seconds": 1e10, "templates": [GROUP], **more}
    return msgspec.convert(fields, ExpanderSettings)


def placeholders(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the requests for nodes."""
    return [each for each in cluster.api.all("pods") if PLACEHOLDER in each["metadata"].get("labels", {})]


async def test_node_is_asked_for_and_the_request_ends_when_it_has_come(cluster: Cluster) -> None:
    """By a pod that only such a node could run, with the leader's token, and unschedulable as autoscalers look for."""
    tolerations = [{"key": "gpu", "operator": "Exists"}]
    async with leading(cluster, expander=expanding()):
        cluster.pod("p", memory=1000, nodeSelector=POOL, tolerations=tolerations)
        await cluster.until(lambda: any(each.get("status") for each in placeholders(cluster)), "marked request")
        (asked,) = placeholders(cluster)
        assert asked["metadata"]["labels"] == {PLACEHOLDER: "gpus", FENCED_LABEL: "true"}
        assert asked["metadata"]["annotations"] == {LEADER: TOKEN}
        spec = asked["spec"]
        assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "2"}
        assert (spec["nodeSelector"], spec["schedulerName"]) == (POOL, "tranche-placeholder")
        assert [each["key"] for each in spec["tolerations"]] == ["gpu"]
        (condition,) = asked["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == (
            *("PodScheduled", "False"),
            "Unschedulable",
        )
        event = await cluster.event("PreScheduled", asked["metadata"]["name"])
        assert event["regarding"]["name"] == "p"
        explained = finish(cluster.term.queries.explain("default", "p"))
        assert explained is not None
        assert any("autoscaling (PreScheduled)" in each for each in explained.hints)
        cluster.node("n1", labels=POOL)
        await cluster.placed("p")
        await cluster.until(lambda: not placeholders(cluster), "end of the request")
        assert cluster.metric("tranche_scheduler_expansions_total", outcome="answered") == 1


@pytest.mark.parametrize("last", ["nodes", "gpunodestatuses"])
async def test_request_ends_before_the_first_binding_to_its_node(cluster: Cluster, last: str) -> None:
    """However rarely the expander looks: the informers tell it of nodes and of their cards, before pods are placed."""
    card = Card("GPU-n1-0", 0, 1000, slots=4)
    came = of_node("n1", card, metadata={"labels": {"kubernetes.io/hostname": "n1", **POOL}})
    async with leading(cluster, expander=expanding(collect_seconds=0.6)):
        cluster.pod("p", memory=1000, nodeSelector=POOL)
        await cluster.until(lambda: bool(placeholders(cluster)), "request")
        (name,) = (each["metadata"]["name"] for each in placeholders(cluster))
        for plural, each in sorted(came, key=lambda each: each[0] == last):
            cluster.api.put(plural, each)
            await asyncio.sleep(0.02)
        await cluster.placed("p")
    writes = [path for method, path in cluster.api.requests if method in ("POST", "DELETE")]
    end = writes.index(f"/api/v1{PLACEHOLDERS}/{name}")
    assert end < next(number for number, path in enumerate(writes) if path.endswith("/binding"))


async def test_requests_of_an_earlier_leader_are_found_again(cluster: Cluster) -> None:
    """By their label: the pod waits for that node, and no other is asked for."""
    metadata = {"name": "tranche-node-6-1", "namespace": SYSTEM, "labels": {PLACEHOLDER: "gpus"}}
    cluster.api.put("pods", {"metadata": metadata, "spec": {"nodeSelector": {"not": "there"}}})
    cluster.pod("p", memory=1000, nodeSelector=POOL)
    async with leading(cluster, expander=expanding()):
        await cluster.event("PreScheduled", "tranche-node-6-1")
        await cluster.wrote("PATCH", f"{PLACEHOLDERS}/tranche-node-6-1/status")
        assert ("POST", f"/api/v1{PLACEHOLDERS}") not in cluster.api.requests


async def test_request_without_an_answer_ends_and_an_event_says_why(cluster: Cluster) -> None:
    """No other node is asked for: an event and `explain` say why."""
    async with leading(cluster, expander=expanding(node_seconds=0.5)):
        cluster.pod("p", memory=1000, nodeSelector=POOL)
        await cluster.event("Failed", "no node came within")
        await cluster.until(lambda: not placeholders(cluster), "end of the request")
        explained = finish(cluster.term.queries.explain("default", "p"))
        assert explained is not None
        assert any("no node is asked for such pods for the next 10 min" in each for each in explained.hints)
    assert cluster.api.requests.count(("POST", f"/api/v1{PLACEHOLDERS}")) == 1


async def test_request_that_is_refused_is_reported_and_tried_again(cluster: Cluster) -> None:
    """The role may be missing."""
    cluster.api.on_write = refusing(PLACEHOLDERS)
    async with leading(cluster, expander=expanding(backoff_seconds=0.05)):
        cluster.pod("p", memory=1000, nodeSelector=POOL)
        await cluster.event("Failed", "was not created")
        cluster.api.on_write = lambda _method, _path: None
        await cluster.until(lambda: bool(placeholders(cluster)), "request")


async def test_in_extender_mode_rejected_pods_bring_nodes(cluster: Cluster) -> None:
    """Those that `/filter` has rejected for their cards; it admits the node when the request for it has ended."""
    async with leading(cluster, extender=True, expander=expanding(templates=[{**GROUP, "memory_mib": 2000}])):
        cluster.pod("p", memory=1500)
        assert not await has_node(cluster, "p")
        await cluster.until(lambda: bool(placeholders(cluster)), "request")
        cluster.node("n1", Card("GPU-n1-0", 0, 2000, slots=4), labels=POOL)
        await cluster.until(lambda: not placeholders(cluster), "end of the request")
        assert await has_node(cluster, "p", "n1")


async def test_without_the_setting_nothing_is_asked_for(cluster: Cluster) -> None:
    """It is off by default."""
    async with leading(cluster):
        cluster.pod("p", memory=2000)
        await cluster.waits("p", "no available node")
        assert cluster.term.queries.expansion("uid-p") == ""
    assert placeholders(cluster) == []
