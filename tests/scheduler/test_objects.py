"""The scheduler keeps only those fields of pods that scheduling depends on, and shares equal values."""

from typing import Any

import msgspec
import pytest

from allocation.names import ALLOCATION, HAMI_BIND_PHASE, environment_key
from scheduler.objects import Pod
from tests.scheduler.support.builders import pod


def test_environment_annotations_are_not_kept() -> None:
    """They are longer than all others; annotations that scheduling depends on are kept."""
    kept = {ALLOCATION: "{}", HAMI_BIND_PHASE: "allocating", "hami.io/node-scheduler-policy": "spread"}
    environment = {environment_key("cuda-visible-devices", "main"): "GPU-1"}
    assert pod("a", annotations={**environment, **kept}).metadata.annotations == kept


def test_equal_values_are_kept_once() -> None:
    """Requests that equal limits, and the tolerations that admission adds to every pod."""
    made = pod("a", memory=1, tolerations=[{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}])
    other = msgspec.json.decode(msgspec.json.encode(made), type=Pod)
    (container,) = other.spec.containers
    assert container.resources.requests is container.resources.limits
    assert other.spec.tolerations is made.spec.tolerations


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
