"""A volume can be provisioned where its class allows it and the storage that a node reaches is large enough."""

from typing import Any

import pytest

from scheduler.volumes.objects import StorageCapacity
from scheduler.volumes.provisioning import Provisioning
from tests.scheduler.support.builders import node
from tests.scheduler.support.storage import capacity, storage_class

N1 = {"kubernetes.io/hostname": "n1"}


def topology(*nodes: str) -> list[dict[str, Any]]:
    """Return allowed topologies."""
    return [{"matchLabelExpressions": [{"key": "kubernetes.io/hostname", "values": nodes}]}]


@pytest.mark.parametrize(
    ("fields", "possible"),
    [
        ({"provisioner": "csi.example.com"}, True),
        ({"provisioner": "kubernetes.io/no-provisioner"}, False),
        ({"provisioner": ""}, False),
        ({"provisioner": "csi.example.com", "allowedTopologies": topology("n0", "n1")}, True),
        ({"provisioner": "csi.example.com", "allowedTopologies": topology("n2")}, False),
        ({"provisioner": "csi.example.com", "allowedTopologies": [{}]}, False),
    ],
)
def test_the_class_decides(fields: dict[str, Any], possible: bool) -> None:  # noqa: FBT001
    """By its provisioner and its topologies."""
    assert Provisioning(storage_class("fast", **fields), 1, None).is_possible(node("n1")) is possible


@pytest.mark.parametrize(
    ("free", "enough"),
    [
        (None, True),
        ([], False),
        ([capacity("c", size="10", labels=N1)], True),
        ([capacity("c", size="9", labels=N1)], False),
        ([capacity("c", size="10", labels={})], True),
        ([capacity("c", size="10", labels={"kubernetes.io/hostname": "n2"})], False),
        ([capacity("c", size="10", labels=None)], False),
        ([capacity("c", size=None, labels=N1)], False),
        ([capacity("c", size="99", labels=N1, maximumVolumeSize="9")], False),
    ],
)
def test_the_free_capacity_decides(free: list[StorageCapacity] | None, enough: bool) -> None:  # noqa: FBT001
    """Where the driver reports it; the size of the largest volume counts before the sum."""
    assert Provisioning(storage_class("fast", provisioner="x"), 10, free).has_capacity(node("n1")) is enough
