"""What the scheduler knows: nodes, cards, and who has what of them, from what the API server shows.

Truth is the inventory of the nodes plus the allocations of the pods that have a node and are not finished; a restart
reads the same truth again. Every change that may cure a waiting pod wakes it.
"""

import logging
from collections import defaultdict

from allocation import hami, holding
from allocation.errors import AllocationError
from allocation.inventory import NodeInventory
from allocation.ledger import Ledger
from allocation.names import HAMI_REGISTER, SCHEDULER_NAME
from allocation.request import PodRequest, read_request
from allocation.settings import AllocationSettings
from cluster.gpu_node_status import GpuNodeStatus
from scheduler.fleet import Fleet
from scheduler.objects import Node, Pod
from scheduler.queue import Cure, Queue

log = logging.getLogger(__name__)


class State:
    """The ledger, the fleet and the queue, moved together by what happens to pods, nodes and inventories."""

    def __init__(self, *, settings: AllocationSettings, queue: Queue, aliases: tuple[str, ...] = ()) -> None:
        self.settings = settings
        self.ledger = Ledger()
        self.fleet = Fleet(ours=settings.resources.all())
        self.queue = queue
        self._names = frozenset((SCHEDULER_NAME, *aliases))
        self._registered: dict[str, NodeInventory] = {}
        self._reported: dict[str, NodeInventory] = {}
        self._unaccounted: defaultdict[str, dict[str, str]] = defaultdict(dict)

    def closed(self, node: str) -> str:
        """Answer why `node` takes no GPU pod at all, empty where it does.

        A pod that runs there and asks for a GPU without an allocation that can be read uses cards that nobody
        knows.
        """
        pods = self._unaccounted.get(node)
        return next(iter(pods.values())) if pods else ""

    # ---- pods ------------------------------------------------------------------------------------------------------

    def set_pod(self, pod: Pod, old: Pod | None = None) -> None:
        """Take a pod's present state; `old` is the one that was taken before."""
        if old is not None and _counts_alike(pod, old):
            return
        if pod.finished:
            self.drop_pod(pod)
        elif pod.spec.node_name:
            self.queue.remove(pod.uid)
            self._settle(pod)
        elif pod.spec.scheduler_name in self._names:
            if pod.spec.scheduling_gates or pod.metadata.deletion_timestamp:
                self.queue.remove(pod.uid)
            else:
                self.queue.add(pod)

    def drop_pod(self, pod: Pod) -> None:
        """Give back what a finished or deleted pod had."""
        self.queue.remove(pod.uid)
        held = self.ledger.holding(pod.uid)
        self.ledger.release(pod.uid)
        self.fleet.leave(pod.uid)
        opened = self._account(pod)
        if held or opened or pod.spec.node_name:
            self.queue.wake(Cure.CAPACITY)

    def request(self, pod: Pod) -> PodRequest:
        """Answer what a pod asks for.

        Raises:
            AllocationError: it cannot be read.
        """
        return read_request(pod.spec, self.settings)

    def _settle(self, pod: Pod) -> None:
        node = pod.spec.node_name
        self.fleet.settle(pod, node)
        try:
            held = holding.of_pod(pod.spec, pod.metadata.annotations, node=node, settings=self.settings)
        except AllocationError as error:
            self._unaccounted[node][pod.uid] = f"pod {pod} runs here uncounted: {error}"
            log.warning("node %s takes no GPU pods: pod %s: %s", node, pod, error)
            return
        self._account(pod)
        if held is not None:
            _, charges = held
            self.ledger.record(pod.uid, node, charges)

    def _account(self, pod: Pod) -> bool:
        """Note that a pod is no longer uncounted; whether that opened its node."""
        return self._unaccounted[pod.spec.node_name].pop(pod.uid, None) is not None

    # ---- nodes and cards -------------------------------------------------------------------------------------------

    def set_node(self, node: Node, _old: Node | None = None) -> None:
        """Take a node's present state; its register annotation counts where no agent of ours reports."""
        name = node.metadata.name
        self.fleet.set_node(node)
        text = node.metadata.annotations.get(HAMI_REGISTER)
        self._registered.pop(name, None)
        if text is not None:
            try:
                self._registered[name] = hami.decode_register(name, text)
            except AllocationError as error:
                log.warning("%s", error)
        self._update_cards(name)
        self.queue.wake(Cure.NODE)

    def drop_node(self, node: Node) -> None:
        """Forget a node."""
        self.fleet.drop_node(node.metadata.name)
        self._registered.pop(node.metadata.name, None)
        self._update_cards(node.metadata.name)

    def set_status(self, status: GpuNodeStatus, _old: GpuNodeStatus | None = None) -> None:
        """Take what an agent reports."""
        self._reported[status.metadata.name] = status.inventory()
        self._update_cards(status.metadata.name)

    def drop_status(self, status: GpuNodeStatus) -> None:
        """Forget what an agent reported."""
        self._reported.pop(status.metadata.name, None)
        self._update_cards(status.metadata.name)

    def _update_cards(self, node: str) -> None:
        inventory = self._reported.get(node) or self._registered.get(node)
        if inventory is None:
            self.ledger.drop_node(node)
            return
        if inventory == self.ledger.inventory(node):
            return
        try:
            self.ledger.set_node(inventory)
        except AllocationError as error:
            log.error("the inventory of node %s is refused: %s", node, error)  # noqa: TRY400 -- the message says it all
            self.ledger.drop_node(node)
            return
        self.queue.wake(Cure.CAPACITY)


def _counts_alike(pod: Pod, old: Pod) -> bool:
    """Whether nothing changed that is counted or decided by; most updates of a pod are about its containers' state."""
    return (
        pod.finished == old.finished
        and pod.metadata.deletion_timestamp == old.metadata.deletion_timestamp
        and pod.metadata.annotations == old.metadata.annotations
        and pod.spec == old.spec
    )
