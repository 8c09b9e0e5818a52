"""Lines about the connections between a pod's cards: which set it has or would have, and why not a better one."""

from collections.abc import Sequence
from typing import Final

from cli.explain.names_list import some
from scheduler.api.explanation_types import Explanation, NodeExplanation
from scheduler.api.topology_types import TopologyExplanation

_SHOWN: Final = 5
"""Nodes that reject the pod for different sets, in the formats for people."""


def of_pod(explanation: Explanation) -> list[str]:
    """Return a line for each set that the pod has or would have."""
    return _lines(explanation.topology, "topology")


def of_node(node: NodeExplanation) -> list[str]:
    """Return a line for each set that the pod would have on a node, or for the one that it waits for there."""
    return _lines(node.topology, f"topology on {node.name}")


def of_rejections(explanation: Explanation, *, wide: bool = False) -> list[str]:
    """Return a line for each set that the pod waits for, with the nodes that say the same of it."""
    nodes_of: dict[str, list[str]] = {}
    for node in explanation.nodes:
        if not node.fits:
            for each in node.topology:
                nodes_of.setdefault(each.text, []).append(node.name)
    lines = [f"topology on {some(tuple(nodes), wide=wide)}: {text}" for text, nodes in nodes_of.items()]
    if wide or len(lines) <= _SHOWN:
        return lines
    return [*lines[:_SHOWN], f"… and {len(lines) - _SHOWN} more; -o wide shows all of them"]


def _lines(sets: Sequence[TopologyExplanation], label: str) -> list[str]:
    """Return a line for each set; the container is named where there are several."""
    if len(sets) == 1:
        return [f"{label}: {sets[0].text}"]
    return [f"{label}, container {each.container}: {each.text}" for each in sets]
