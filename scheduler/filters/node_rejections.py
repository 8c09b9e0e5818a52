"""The nodes that one part of the state rejects for all GPU pods; who follows them learns which node changed."""

from collections.abc import Callable, Iterator, Mapping

from allocation.reasons import NodeRejection


class NodeRejections(Mapping[str, NodeRejection]):
    """The rejections of one source, by node."""

    def __init__(self) -> None:
        self._by_node: dict[str, NodeRejection] = {}
        self._followers: list[Callable[[str], object]] = []

    def follow(self, on_change: Callable[[str], object]) -> None:
        """Call `on_change` with each node whose rejection begins, ends or changes from now on."""
        self._followers.append(on_change)

    def set(self, node: str, rejection: NodeRejection | None) -> None:
        """Set the rejection by a node, or None if it takes pods."""
        if self._by_node.get(node) == rejection:
            return
        if rejection is None:
            del self._by_node[node]
        else:
            self._by_node[node] = rejection
        for on_change in self._followers:
            on_change(node)

    def __getitem__(self, node: str) -> NodeRejection:
        """Return the rejection by a node; raise KeyError for one that takes pods."""
        return self._by_node[node]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the nodes."""
        return iter(self._by_node)

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self._by_node)
