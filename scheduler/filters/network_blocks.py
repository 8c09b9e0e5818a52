"""The blocks of the network that each node is in: regions, zones, NVLink domains, or what other labels name.

A level is a node label, and levels are ordered from the widest blocks to the narrowest. Two nodes are in the same block
of a level if they have the label of that level and agree in it and in the labels of all wider levels. So blocks never
overlap, and a narrower block lies in one wider block: racks with the same number in two zones are two blocks. A node
without the label of a level is in no block of this level. It may well be in a narrower one, together with nodes that
lack the same label, because many clusters have no regions, and some have NVLink domains only.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import count

import msgspec

Values = tuple[str | None, ...]
"""The values of the labels of the levels, the widest first; None where a node does not have the label."""


class NetworkBlock(msgspec.Struct, frozen=True, eq=False):
    """A block that has nodes.

    Attributes:
        id: a number greater than 0, which no other block has had.
        values: the labels by which its nodes are in it, from the widest level to its own.
        nodes: the names of its nodes.
    """

    id: int
    values: Values
    nodes: set[str]


class NetworkBlocks:
    """The blocks of all nodes.

    Attributes:
        levels: the label of each level, the widest first.
    """

    def __init__(self, levels: Sequence[str]) -> None:
        self.levels = tuple(levels)
        self._ids = count(1)
        self._blocks: list[dict[Values, NetworkBlock]] = [{} for _ in levels]
        self._of: dict[str, Sequence[NetworkBlock | None]] = {}
        self._nowhere = (None,) * len(levels)

    def __bool__(self) -> bool:
        """Whether any node is in a block."""
        return bool(self._of)

    def at(self, level: int) -> Collection[NetworkBlock]:
        """Return the blocks of a level, which is given by its position in `levels`."""
        return self._blocks[level].values()

    def of(self, node: str) -> Sequence[NetworkBlock | None]:
        """Return the block of a node at each level, the widest first; None where it is in none."""
        return self._of.get(node, self._nowhere)

    def set_node(self, node: str, labels: Mapping[str, str]) -> None:
        """Set the labels of a node; one that does not exist has an empty mapping."""
        values = tuple([labels.get(level) for level in self.levels])
        blocks = tuple([self._moved(node, old, values[: level + 1]) for level, old in enumerate(self.of(node))])
        if blocks == self._nowhere:
            self._of.pop(node, None)
        else:
            self._of[node] = blocks

    def _moved(self, node: str, old: NetworkBlock | None, values: Values) -> NetworkBlock | None:
        """Move a node from its `old` block to the block of the same level with `values`; return this block."""
        blocks = self._blocks[len(values) - 1]
        if old is not None:
            if old.values == values:
                return old
            old.nodes.remove(node)
            if not old.nodes:
                del blocks[old.values]
        if values[-1] is None:
            return None
        new = blocks.get(values)
        if new is None:
            new = blocks[values] = NetworkBlock(next(self._ids), values, set())
        new.nodes.add(node)
        return new
