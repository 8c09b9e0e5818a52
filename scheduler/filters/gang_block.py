"""The block that a gang must not leave: all its nodes have the same value of a label that its pods name."""

from collections.abc import Mapping
from typing import Final

import msgspec

from allocation.reasons import NodeReason, NodeRejection
from scheduler.gangs.gangs import Gangs
from scheduler.objects import Node, Pod

_MOST_CHARACTERS: Final = 63
"""Those of a label's value."""


class _Rule(msgspec.Struct, frozen=True):
    """The label, and the value that a node must have."""

    key: str
    value: str

    def rejection(self, node: Node) -> NodeRejection | None:
        """Return why a node does not take a pod of the gang, or None where it does."""
        found = node.metadata.labels.get(self.key)
        if found == self.value and found is not None:
            return None
        message = f"node is not in the block {self.key}={self.value[:_MOST_CHARACTERS]} of the pod's gang"
        return NodeRejection(NodeReason.GangBlockMismatch, message, resolvable=False)


def rule(pod: Pod, *, gangs: Gangs, nodes: Mapping[str, Node]) -> _Rule | None:
    """Return the rule for a pod: the block that is being tried for its gang, or the one where the gang is already."""
    gang = gangs.of(pod.uid)
    if gang is None or not gang.block:
        return None
    if gang.tried_block is not None:
        return _Rule(gang.block, gang.tried_block)
    taken = next((nodes[name] for name in gang.by_node if name in nodes), None)
    return _Rule(gang.block, taken.metadata.labels.get(gang.block, "")) if taken is not None else None
