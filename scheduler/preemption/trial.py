"""Tries a pod on one node as if some pods were gone. The state of the cluster stays as it is."""

from collections.abc import Iterable, Mapping

from allocation.allocation import Charge, charges
from allocation.ledger.ledger import Ledger
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
    """A node without the pods that are leaving it, on a ledger of its own.

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
        inventory = state.ledger.inventory(node)
        self._ledger = Ledger(rows=1, cards=len(inventory.cards) if inventory is not None else 1)
        if inventory is not None:
            self._ledger.set_node(inventory)
            self._ledger.set_cordon(node, state.ledger.cordon(node))
        stay = [each for each in state.ledger.reservations(node) if each.uid not in self._absent]
        self.pods = frozenset(each.uid for each in stay)
        for each in stay:
            self._ledger.record(each.uid, node, each.charges)

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
        with state.node_cache.without([*self._absent, *gone]):
            if state.node_cache.is_short(self._node, count):
                return False
            return not state.has_queue or bool(finish(state.node_cache.filter(self._pod, (self._node,))).fitting)
