"""Tries a pod on a copy of one node, without some pods."""

from collections.abc import Iterable, Mapping

from allocation.allocation import Charge, charges
from allocation.ledger import ledger_copy
from allocation.placement import placement
from allocation.placement.node_cards import NodeCards
from allocation.placement.query import PlacementQuery
from allocation.placement.rejection import Rejection
from allocation.quota import Headroom
from allocation.steps import finish
from scheduler.gpu_requirements import GpuRequirements
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState


class NodeTrial:
    """A node without the pods that are leaving it, and then without others.

    Attributes:
        pods: the UIDs of the others that hold cards there.
    """

    def __init__(
        self,
        state: ClusterState,
        node: str,
        pod: Pod,
        requirements: GpuRequirements,
        *,
        absent: Iterable[str],
        closed: Mapping[str, Rejection],
    ) -> None:
        """Try `pod` on `node` without the reservations `absent`; nodes that are `closed` take no pod."""
        self._state = state
        self._node = node
        self._pod = pod
        self._requirements = requirements
        self._closed = closed
        self._absent = frozenset(absent)
        self._ledger = ledger_copy.of_node(state.ledger, node, without=self._absent)
        self.pods = frozenset(each.uid for each in self._ledger.reservations(node))

    def place(self, gone: frozenset[str], headroom: Headroom) -> tuple[Charge, ...] | None:
        """Return what the pod takes of each card once the pods `gone` are gone as well; None if it does not fit."""
        if self._node in self._closed:
            return None
        request = self._requirements.request
        with self._ledger.without(gone):
            # Most often there are too few cards, and that is found out at the least cost.
            if not self._has_cards(headroom) or not self._is_admitted(gone):
                return None
            query = PlacementQuery(request, self._requirements.constraints, headroom)
            placed = placement.place_on(self._ledger, query, self._node)
        return None if isinstance(placed, Rejection) else charges(placed, request)

    def _has_cards(self, headroom: Headroom) -> bool:
        """Whether each container would find enough cards if it were alone; reasons are not worked out."""
        row, constraints = self._ledger.row(self._node), self._requirements.constraints
        if row is None:
            return False
        cards, containers = NodeCards(self._ledger, row, constraints), self._requirements.request.gpu_containers
        return all(len(cards.fitting(each, headroom, limit=each.count)) == each.count for each in containers)

    def _is_admitted(self, gone: frozenset[str]) -> bool:
        """Whether the node takes the pod in every other respect; in extender mode kube-scheduler judges that."""
        state, count = self._state, sum(each.count for each in self._requirements.own.gpu_containers)
        absent = self._absent | gone
        if state.node_cache.is_short(self._node, count, without=absent):
            return False
        if not state.has_queue:
            return True
        return bool(finish(state.node_cache.filter(self._pod, (self._node,), without=absent)).fitting)
