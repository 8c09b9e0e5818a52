"""The scheduler keeps only those fields of pods that scheduling depends on, and shares equal values."""

from typing import Any

import msgspec
import pytest

from allocation.names import ALLOCATION, HAMI_BIND_PHASE, environment_key
from scheduler.filters.host_ports import host_ports
from scheduler.filters.node_cache import NodeCache
from scheduler.objects import Pod
from scheduler.pod_spec.containers import PodContainer
from scheduler.pod_spec.shared_values import shared
from tests.scheduler.support.builders import pod

_TOLERATION = {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}


def test_environment_annotations_are_not_kept() -> None:
    """They are longer than all others; annotations that scheduling depends on are kept."""
    kept = {ALLOCATION: "{}", HAMI_BIND_PHASE: "allocating", "hami.io/node-scheduler-policy": "spread"}
    environment = {environment_key("cuda-visible-devices", "main"): "GPU-1"}
    assert pod("a", annotations={**environment, **kept}).metadata.annotations == kept


def test_equal_values_are_kept_once() -> None:
    """Labels, requests, names, and the tolerations that admission adds to every pod; absent ones, too."""
    text = msgspec.json.encode(pod("a", node="n1", memory=1, labels={"app": "a"}, tolerations=[_TOLERATION]))
    one, other = (msgspec.json.decode(text, type=Pod) for _ in range(2))
    mine, others = one.spec.containers[0], other.spec.containers[0]
    assert mine.resources.requests is mine.resources.limits is others.resources.limits
    assert mine.name is others.name
    assert one.metadata.labels is other.metadata.labels
    assert one.metadata.namespace is other.metadata.namespace
    assert (one.spec.tolerations, one.spec.node_name) == (other.spec.tolerations, "n1")
    for name in ("tolerations", "node_name", "scheduler_name", "node_selector", "overhead"):
        assert getattr(one.spec, name) is getattr(other.spec, name), name
    assert one.status.allocated_resources is other.status.allocated_resources is one.spec.overhead
    cache = NodeCache(ours=())
    assert cache.requests(one)[0] is cache.requests(other)[0]
    assert host_ports(one.spec) is host_ports(other.spec)


def test_requests_that_differ_from_limits_are_kept_once_too() -> None:
    """As those of CPU and memory do."""
    container = {"name": "main", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}
    one, other = (msgspec.convert(container, PodContainer).resources for _ in range(2))
    assert (one.limits, one.requests) == ({"cpu": "2"}, {"cpu": "1"})
    assert (one.limits is other.limits, one.requests is other.requests) == (True, True)


def test_a_mapping_of_many_entries_is_not_kept_beyond_its_pod() -> None:
    """A tenant may write a quarter of a megabyte of labels; the cache would keep it when the pod is gone."""
    few, many = ({f"key-{number}": "" for number in range(count)} for count in (32, 33))
    assert shared(dict(few)) is shared(dict(few))
    assert shared(dict(many)) is not shared(dict(many))
    assert shared(many) == many


@pytest.mark.parametrize(
    ("owners", "kept"),
    [
        ([{"kind": "Deployment", "uid": "1"}], None),
        ([{"kind": "Node", "uid": "1"}, {"kind": "ReplicaSet", "uid": "2", "controller": True}], "2"),
        ([{"kind": "ReplicaSet", "uid": "1" * 65, "controller": True}], None),
        ([{"kind": "R" * 254, "uid": "1", "controller": True}], None),
    ],
)
def test_only_a_short_controller_of_a_pod_is_kept(owners: list[dict[str, Any]], kept: str | None) -> None:
    """A tenant may write any number of owners, as long as they like; replicas share what is kept."""
    body = {"metadata": {"name": "a", "ownerReferences": owners}, "spec": {}}
    one, other = msgspec.convert(body, Pod), msgspec.convert(body, Pod)
    assert (one.metadata.controller.uid if one.metadata.controller else None) == kept
    assert one.metadata.owner_references is other.metadata.owner_references
