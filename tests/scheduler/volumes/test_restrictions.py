"""Disks that pods name directly are mounted by one pod of a node, unless all of them only read."""

from typing import Any

import msgspec
import pytest

from scheduler.pod_spec.volumes import Volume
from scheduler.volumes.restrictions import disks


def rbd(*monitors: str, **fields: Any) -> dict[str, Any]:
    """Return a Ceph image."""
    return {"rbd": {"monitors": monitors, "image": "i", **fields}}


@pytest.mark.parametrize(
    ("mine", "other", "conflict"),
    [
        ({"gcePersistentDisk": {"pdName": "a"}}, {"gcePersistentDisk": {"pdName": "a"}}, True),
        ({"gcePersistentDisk": {"pdName": "a"}}, {"gcePersistentDisk": {"pdName": "b"}}, False),
        (
            {"gcePersistentDisk": {"pdName": "a", "readOnly": True}},
            {"gcePersistentDisk": {"pdName": "a", "readOnly": True}},
            False,
        ),
        (
            {"gcePersistentDisk": {"pdName": "a", "readOnly": True}},
            {"gcePersistentDisk": {"pdName": "a"}},
            True,
        ),
        ({"awsElasticBlockStore": {"volumeID": "a"}}, {"awsElasticBlockStore": {"volumeID": "a"}}, True),
        ({"iscsi": {"iqn": "a"}}, {"iscsi": {"iqn": "a"}}, True),
        (rbd("m1", "m2"), rbd("m2"), True),
        (rbd("m1"), rbd("m2"), False),
        (rbd("m1"), rbd("m1", pool="other"), False),
        (rbd("m1", readOnly=True), rbd("m1", readOnly=True), False),
        ({"awsElasticBlockStore": {"volumeID": "a"}}, {"gcePersistentDisk": {"pdName": "a"}}, False),
    ],
)
def test_pods_with_one_disk_conflict(mine: dict[str, Any], other: dict[str, Any], conflict: bool) -> None:  # noqa: FBT001
    """In both directions."""
    (left,), (right,) = (disks([msgspec.convert({"name": "v", **each}, Volume)]) for each in (mine, other))
    assert left.conflicts_with(right) is conflict
    assert right.conflicts_with(left) is conflict
