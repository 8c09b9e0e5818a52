"""The status of a node, as far as scheduling depends on it."""

from functools import lru_cache

import msgspec

from allocation.fractions import READY, NodeCondition


class NodeStatus(msgspec.Struct, gc=False):
    """The status of a node: its allocatable resources, and of its conditions those that scheduling depends on."""

    allocatable: dict[str, str] = {}
    conditions: tuple[NodeCondition, ...] = ()

    def __post_init__(self) -> None:
        """Drop the conditions that are not read, which each kubelet has."""
        if self.conditions:
            self.conditions = tuple(each for each in self.conditions if each.type == READY)


class NodeImage(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """An image that a node has, by all its names."""

    names: tuple[str, ...] = ()
    size_bytes: int = 0


class StatusWithImages(NodeStatus, gc=False):
    """The status of a node: its allocatable resources and its images."""

    images: tuple[NodeImage, ...] = ()

    def __post_init__(self) -> None:
        """Share the images, because nodes have many in common."""
        super().__post_init__()
        self.images = tuple(map(_shared_image, self.images))


@lru_cache(maxsize=16384)
def _shared_image(image: NodeImage) -> NodeImage:
    """Return the first of all equal images."""
    return image
