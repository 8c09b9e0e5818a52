"""Whether a volume for an unbound claim can be provisioned on a node: its class, its topology and free capacity."""

from collections.abc import Iterable, Mapping

from allocation import quantity
from allocation.label_selector import Selector, accepts, label_selector
from scheduler.objects import Node
from scheduler.volumes import label_index
from scheduler.volumes.label_index import LabelIndex
from scheduler.volumes.objects import StorageCapacity, StorageClass, TopologyTerm

_NONE = ("", "kubernetes.io/no-provisioner")


class Provisioning:
    """Whether nodes can get a volume of one size and class, compiled once for many nodes."""

    def __init__(self, storage_class: StorageClass, size: int, capacities: Iterable[StorageCapacity] | None) -> None:
        """Provision `size` bytes within `capacities`, those of the class, or without a limit if they are None."""
        self._has_provisioner = storage_class.provisioner not in _NONE
        self._topologies = storage_class.allowed_topologies
        self._sufficient: LabelIndex[Selector] | None = None
        if capacities is not None and size:
            self._sufficient = LabelIndex()
            for each in capacities:
                if each.node_topology is not None and _largest(each) >= size:
                    selector = label_selector(each.node_topology) or ()
                    key = f"{each.metadata.namespace}/{each.metadata.name}"
                    self._sufficient.add(key, selector, label_index.of_expressions(selector))

    def is_possible(self, node: Node) -> bool:
        """Whether the class's provisioner makes volumes for the node, if there is enough capacity."""
        if not self._has_provisioner:
            return False
        return not self._topologies or any(_holds(term, node.metadata.labels) for term in self._topologies)

    def has_capacity(self, node: Node) -> bool:
        """Whether a storage that the node reaches is large enough."""
        if self._sufficient is None:
            return True
        labels, index = node.metadata.labels, self._sufficient
        return any(accepts(each, labels) for bucket in index.buckets(labels) for each in index.items(bucket))


def is_less(capacity: StorageCapacity, old: StorageCapacity) -> bool:
    """Whether a capacity has no room for larger volumes than before, for the same nodes."""
    return capacity.node_topology == old.node_topology and _largest(capacity) <= _largest(old)


def _largest(capacity: StorageCapacity) -> int:
    """Return the size in bytes of the largest volume that can be made, or -1 if the driver does not say."""
    size = capacity.maximum_volume_size if capacity.maximum_volume_size is not None else capacity.capacity
    return quantity.units(size) if size is not None else -1


def _holds(term: TopologyTerm, labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels has one of the values of each key; an empty term matches no node."""
    expressions = term.match_label_expressions
    return bool(expressions) and all(labels.get(each.key) in each.values for each in expressions)
