"""What preferences need to know of all nodes at once: soft taints and images, counted over the nodes."""

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Final, TypeVar

from scheduler.objects import Node, Taint

K = TypeVar("K", bound=Hashable)

SOFT: Final = "PreferNoSchedule"
"""The effect of taints that do not keep pods off a node, but make it worse for them."""


class NodeIndex:
    """The soft taints and the images of nodes.

    Attributes:
        images: how many nodes have an image of each name; empty unless images are decoded (`NodeWithImages`).
    """

    def __init__(self) -> None:
        self._taints: Counter[tuple[str, str]] = Counter()
        self.images: Counter[str] = Counter()

    @property
    def soft_taints(self) -> list[Taint]:
        """The different soft taints of all nodes."""
        return [Taint(key, SOFT, value) for key, value in self._taints]

    def add(self, node: Node) -> None:
        """Count a node."""
        self._taints.update(_soft_taints(node))
        self.images.update(_image_names(node))

    def remove(self, node: Node) -> None:
        """Stop counting a node."""
        _subtract(self._taints, _soft_taints(node))
        _subtract(self.images, _image_names(node))


def _subtract(counts: Counter[K], keys: Iterable[K]) -> None:
    for key in keys:
        counts[key] -= 1
        if not counts[key]:
            del counts[key]


def _soft_taints(node: Node) -> set[tuple[str, str]]:
    return {(taint.key, taint.value) for taint in node.spec.taints if taint.effect == SOFT}


def _image_names(node: Node) -> set[str]:
    return {name for image in node.images for name in image.names}
