"""The nodes that reject a pod as a whole, whatever their cards, and those that are evaluated for it at all."""

from collections.abc import Collection, Mapping

from allocation.ledger.ledger import Ledger
from allocation.placement import bound_placement, rejection
from allocation.placement.rejection import Rejection
from allocation.quota import minimum_request
from allocation.reasons import NodeRejection
from scheduler.filters.node_filter import NodeFilter
from scheduler.gpu_requirements import GpuRequirements
from scheduler.state.closed_nodes import ClosedNodes
from scheduler.state.deliveries import Deliveries
from scheduler.state.plugin_nodes import PluginNodes


class RejectedNodes:
    """The rejections of pods by closed nodes, by full device plugins, and by nodes that reject one pod only."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        node_filter: NodeFilter,
        closed_nodes: ClosedNodes,
        deliveries: Deliveries,
        plugin_nodes: PluginNodes,
    ) -> None:
        self._ledger = ledger
        self._node_filter = node_filter
        self._closed_nodes = closed_nodes
        self._deliveries = deliveries
        self._plugin_nodes = plugin_nodes

    def of(self, requirements: GpuRequirements, *, without: Collection[str] = ()) -> dict[str, Rejection]:
        """Return the rejections of a pod; the pods `without` are taken to have given back their plugin's devices."""
        shortages = self._node_filter.shortages(minimum_request(requirements.own).cards, without=without)
        return _of_nodes({**shortages, **self._lasting(requirements)})

    def lasting(self, requirements: GpuRequirements) -> dict[str, Rejection]:
        """Return the rejections of a pod that stay if all other pods leave: those of `of` but for shortages."""
        return _of_nodes(self._lasting(requirements))

    def own(self, requirements: GpuRequirements) -> Mapping[str, NodeRejection]:
        """Return the rejections by nodes that take other pods of the same amounts.

        These nodes cannot deliver cards to a container of the pod, or cannot limit its containers together, or would
        give it another number of cards than are bound to its application.
        """
        rejections = self._deliveries.rejections_of(requirements) | self._plugin_nodes.rejections_of(requirements)
        if requirements.bound is not None and requirements.bound.policy == "all":
            for node, cards in bound_placement.by_node(self._ledger, requirements.bound).items():
                for plugins in (self._plugin_nodes, self._deliveries):
                    rejections |= plugins.rejections_of_count(node, requirements.own, len(cards))
        return rejections

    def candidates(self, requirements: GpuRequirements) -> tuple[str, ...] | None:
        """Return the nodes to evaluate for a pod, or None for all: for a GPU pod those with cards that it may have."""
        if not requirements.request or requirements.fixed is not None:
            return None
        if requirements.bound is not None:
            return bound_placement.nodes_of(self._ledger, requirements.bound)
        closed = self._closed_nodes.now()
        return (*self._ledger.nodes, *(name for name in closed if self._ledger.row(name) is None))

    def _lasting(self, requirements: GpuRequirements) -> Mapping[str, NodeRejection]:
        own, closed = self.own(requirements), self._closed_nodes.now()
        return {**own, **closed} if own else closed


def _of_nodes(rejections: Mapping[str, NodeRejection]) -> dict[str, Rejection]:
    return {node: rejection.of_node(each) for node, each in rejections.items()}
