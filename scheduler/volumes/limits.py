"""Attach limits: how many volumes of each CSI driver a node can attach, and how many it has."""

from collections.abc import Collection, Mapping

from scheduler.volumes.in_tree import Attachment
from scheduler.volumes.objects import CsiNode


def of_node(csi_node: CsiNode | None) -> dict[str, int]:
    """Return the limit of each driver that has one on a node."""
    if csi_node is None:
        return {}
    limits = ((driver.name, driver.allocatable) for driver in csi_node.spec.drivers or ())
    return {name: each.count for name, each in limits if each is not None and each.count is not None}


def is_exceeded(
    wanted: Collection[Attachment],
    *,
    unused: Mapping[str, int],
    limits: Mapping[str, int],
    in_use: Collection[tuple[str, str]],
    attached: Mapping[str, int],
    migrated: Collection[str],
) -> bool:
    """Whether a driver cannot attach what a pod wants on a node.

    Args:
        wanted: the volumes that pods, on this node or on others, may use already.
        unused: by driver, how many volumes the pod wants that no other pod uses.
        limits: by driver, how many volumes the node can attach.
        in_use: drivers and handles of the volumes of the node's pods, which count once.
        attached: by driver, how many volumes the node has.
        migrated: the in-tree plugins that the node has migrated.
    """
    counts = dict(unused)
    for each in wanted:
        if (each.driver, each.handle) not in in_use and (not each.plugin or each.plugin in migrated):
            counts[each.driver] = counts.get(each.driver, 0) + 1
    return any(
        driver in limits and attached.get(driver, 0) + count > limits[driver] for driver, count in counts.items()
    )
