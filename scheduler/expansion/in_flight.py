"""Nodes that do not exist yet, with the pods that are promised to them: a second ledger beside that of the cluster.

What a pod needs of such a node is evaluated as for one that exists, by the same filters and the same placement.
"""

from collections.abc import Hashable

import msgspec

from allocation.fairness.queue_spec import QueueKey
from allocation.ledger.ledger import Ledger
from allocation.ledger.ledger_view import LedgerView
from allocation.models import rated
from allocation.placement import rejection
from allocation.quota import Headroom, minimum_request
from allocation.steps import finish
from scheduler.cycle import evaluation
from scheduler.cycle.evaluation import Evaluation
from scheduler.expansion.template import NodeTemplate
from scheduler.fairness.use import Use
from scheduler.filters.node_cache import NodeCache
from scheduler.filters.node_filter import NodeFilter
from scheduler.gpu_requirements import GpuRequirements
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState


class Promise(msgspec.Struct, frozen=True):
    """A pod that is to get a node which is on its way.

    Attributes:
        pod: the pod.
        node: the node.
        shape: pods of a shape are alike.
        key: the queue that is charged.
        use: what its namespace and its queue are charged.
    """

    pod: Pod
    node: str
    shape: Hashable
    key: QueueKey
    use: Use


class InFlightNodes:
    """Some nodes, and what is promised of them.

    Attributes:
        templates: what each node is like.
        promises: the promised pods by UID.
    """

    def __init__(self, state: ClusterState) -> None:
        """Read the settings, quotas and volumes of `state`, which stays as it is."""
        self._state = state
        counted = state.settings.resources.count
        self._ledger = Ledger(state.settings.sharing, rows=16, cards=8)
        self._nodes = NodeCache(ours=set(state.settings.resources.managed()) - {counted}, counted=counted)
        self._filter = NodeFilter(self._nodes, volumes=state.volumes if state.has_queue else None)
        self.templates: dict[str, NodeTemplate] = {}
        self.promises: dict[str, Promise] = {}

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self.templates)

    def add(self, name: str, template: NodeTemplate) -> None:
        """Add a node."""
        node, inventory = template.named(name)
        self._nodes.set_node(node)
        self._ledger.set_node(rated(inventory, self._state.settings.models))
        self.templates[name] = template
        for each in template.daemons:
            metadata = msgspec.structs.replace(each.metadata, uid=f"{each.uid}-{name}")
            self._nodes.add_pod(msgspec.structs.replace(each, metadata=metadata), name)

    def drop(self, name: str) -> list[Promise]:
        """Forget a node; return what was promised of it."""
        promised = self.promised_of(name)
        for each in promised:
            self.release(each.pod.uid)
        if self.templates.pop(name, None) is not None:
            for uid in self._nodes.pods_of(name):
                self._nodes.remove_pod(uid)
            self._nodes.drop_node(name)
            self._ledger.drop_node(name)
        return promised

    def promised_of(self, name: str) -> list[Promise]:
        """Return what is promised of a node."""
        return [each for each in self.promises.values() if each.node == name]

    def evaluate(self, pod: Pod, requirements: GpuRequirements, headroom: Headroom) -> Evaluation:
        """Evaluate the nodes for a pod."""
        nodes = finish(self._filter.filter(pod, tuple(self.templates)))
        count = minimum_request(requirements.own).cards
        full = {name: rejection.of_node(each) for name, each in self._filter.shortages(count).items()}
        cards = finish(
            evaluation.evaluate_cards(
                requirements, nodes.fitting, view=LedgerView(self._ledger), rejected_nodes=full, headroom=headroom
            )
        )
        return msgspec.structs.replace(cards, nodes=nodes)

    def cards_take(self, requirements: GpuRequirements, headroom: Headroom) -> bool:
        """Whether the cards of any node take a pod, whatever else it needs of a node."""
        view, names = LedgerView(self._ledger), tuple(self.templates)
        found = finish(evaluation.evaluate_cards(requirements, names, view=view, rejected_nodes={}, headroom=headroom))
        return bool(found.scores)

    def promise(self, pod: Pod, shape: Hashable, requirements: GpuRequirements, headroom: Headroom) -> str:
        """Promise a pod to the node that suits it best; return the node, or an empty string if none takes it."""
        evaluated = self.evaluate(pod, requirements, headroom)
        if evaluated.allocation is None:
            return ""
        node, charges = evaluated.allocation.node, evaluated.charges
        self._ledger.assume(pod.uid, node, charges)
        self._nodes.add_pod(pod, node, assumed=True)
        use = Use(pods=1)
        use.add_charges(charges, 1, tflops=self._ledger.tflops(charges))
        self.promises[pod.uid] = Promise(pod, node, shape, self._state.fair_share.key(pod), use)
        return node

    def release(self, uid: str) -> None:
        """Promise a pod nothing any more."""
        if self.promises.pop(uid, None) is not None:
            self._ledger.release(uid)
            self._nodes.remove_pod(uid)

    def headroom(self, pod: Pod) -> Headroom | None:
        """Return what quotas leave a pod beside the promised ones; None if there may not be another pod."""
        state, namespace, key = self._state, pod.metadata.namespace, self._state.fair_share.key(pod)
        of_namespace = [each for each in self.promises.values() if each.pod.metadata.namespace == namespace]
        of_queue = [each for each in self.promises.values() if each.key == key]
        for left, promised in (
            (state.quotas.pods_left(namespace), of_namespace),
            (state.fair_share.pods_left(key), of_queue),
        ):
            if left is not None and left - len(promised) < 1:
                return None
        burst = sum((each.use.burst for each in of_namespace), state.requirements.burst(pod))
        return _less(state.quotas.headroom(namespace, burst=burst), of_namespace).within(
            _less(state.fair_share.headroom(key), of_queue)
        )


def _less(headroom: Headroom, promised: list[Promise]) -> Headroom:
    """Return the headroom without what is promised."""
    if not headroom.is_limited:
        return headroom
    return headroom.less(
        memory_mib=sum(each.use.memory_mib for each in promised),
        cores=sum(each.use.cores for each in promised),
        tflops=sum(each.use.tflops for each in promised),
        cards=sum(each.use.cards for each in promised),
    )
