"""Which updates of nodes and pods are ignored: those that change nothing that scheduling depends on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from allocation.fractions import READY
from allocation.names import (
    ALLOCATION,
    CORDON,
    HAMI_HANDSHAKE,
    HAMI_LOCK,
    HAMI_REGISTER,
    HAMI_SCORES,
    SHARE_MODE_PREFIX,
)
from scheduler.objects import Node, Pod
from scheduler.state.updates import are_nodes_alike, are_pods_alike
from tests.scheduler.support.merge_patch import merged

NODE: dict[str, Any] = {
    "metadata": {"name": "n1", "labels": {"zone": "a"}, "annotations": {HAMI_REGISTER: "[]", CORDON: ""}},
    "spec": {},
    "status": {
        "allocatable": {"cpu": "4"},
        "conditions": [{"type": READY, "status": "True"}],
    },
}
POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "default", "uid": "u", "labels": {"app": "a"}, "annotations": {"a": "b"}},
    "spec": {"schedulerName": "tranche", "containers": [{"name": "main"}]},
    "status": {"phase": "Pending"},
}


@pytest.mark.parametrize(
    ("change", "are_alike"),
    [
        ({}, True),
        ({"metadata": {"resourceVersion": "2", "annotations": {"other": "x"}}}, True),
        ({"status": {"conditions": [*NODE["status"]["conditions"], {"type": "Ready", "status": "False"}]}}, True),
        ({"status": {"images": [{"names": ["a"]}]}}, True),
        *[({"metadata": {"annotations": {key: "x"}}}, False) for key in (HAMI_REGISTER, HAMI_SCORES)],
        *[({"metadata": {"annotations": {key: "x"}}}, False) for key in (HAMI_HANDSHAKE, CORDON)],
        ({"metadata": {"labels": {"zone": "b"}}}, False),
        ({"metadata": {"annotations": {HAMI_LOCK: "2026-01-01T00:00:00Z"}}}, True),
        ({"metadata": {"annotations": {f"{SHARE_MODE_PREFIX}GPU-a": "mem-slicing"}}}, False),
        ({"spec": {"unschedulable": True}}, False),
        ({"status": {"allocatable": {"cpu": "5"}}}, False),
        ({"status": {"conditions": [{"type": READY, "status": "False"}]}}, False),
    ],
)
def test_update_of_a_node(change: dict[str, Any], *, are_alike: bool) -> None:
    """Heartbeats and foreign annotations are ignored, in both directions."""
    old, new = (msgspec.convert(each, Node) for each in (NODE, merged(NODE, change)))
    assert are_nodes_alike(new, old) == are_nodes_alike(old, new) == are_alike


@pytest.mark.parametrize(
    ("change", "are_alike"),
    [
        ({"metadata": {"resourceVersion": "2", "annotations": {"other": "x"}}}, True),
        ({"status": {"phase": "Running"}}, True),
        ({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, True),
        ({"status": {"phase": "Failed"}}, False),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, False),
        ({"metadata": {"annotations": {ALLOCATION: "{}"}}}, False),
        ({"metadata": {"labels": {"app": "b"}}}, False),
        ({"spec": {"nodeName": "n1"}}, False),
        ({"status": {"nominatedNodeName": "n1"}}, False),
        ({"status": {"containerStatuses": [{"name": "main", "allocatedResources": {"cpu": "1"}}]}}, False),
        ({"status": {"initContainerStatuses": [{"name": "first", "allocatedResources": {"cpu": "1"}}]}}, False),
        ({"status": {"allocatedResources": {"cpu": "1"}}}, False),
        ({"status": {"resources": {"requests": {"cpu": "1"}}}}, False),
    ],
)
def test_update_of_a_pod(change: dict[str, Any], *, are_alike: bool) -> None:
    """The states of its containers are ignored, in both directions."""
    old, new = (msgspec.convert(each, Pod) for each in (POD, merged(POD, change)))
    assert are_pods_alike(new, old) == are_pods_alike(old, new) == are_alike


def test_nomination_of_a_pod_with_a_node_is_ignored() -> None:
    """It has what it was nominated for."""
    old, new = (
        msgspec.convert(merged(POD, {"spec": {"nodeName": "n1"}, "status": {"nominatedNodeName": node}}), Pod)
        for node in ("n1", "")
    )
    assert are_pods_alike(new, old)
