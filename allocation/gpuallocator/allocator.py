"""`GpuAllocator`: TensorFusion's allocator by its own names, in snake case, over one ledger.

Nothing is read, written or waited for but by what the constructor gets.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from allocation import adjustment
from allocation.adjustment import Amounts, is_scaling_quota_exceeded_error
from allocation.errors import AllocationError
from allocation.gpuallocator import requests, stores
from allocation.gpuallocator.choice import CardChooser
from allocation.gpuallocator.lifecycle import BindHandler
from allocation.gpuallocator.quota_store import QuotaStore
from allocation.gpuallocator.requests import AllocRequest, PodMeta, check_measure
from allocation.gpuallocator.stores import Gpu, NodeCapacity, StatusSink
from allocation.gpuallocator.strategies import StrategyConfig, new_strategy
from allocation.inventory import NodeInventory
from allocation.label_selector import Selector
from allocation.models import rated
from allocation.settings import AllocationSettings, IsolationPolicy

CLEAN_UP_CHECK_INTERVAL: Final = 180.0
"""Seconds between two calls of `clean_up`."""


class PodSource(Protocol):
    """Where the allocator learns which pods there are."""

    def exists(self, pod: PodMeta) -> bool:
        """Whether the API has the pod; if that cannot be read, it has."""


class GpuAllocator(CardChooser):
    """The allocator. Its methods must not be called from several threads at once."""

    is_scaling_quota_exceeded_error = staticmethod(is_scaling_quota_exceeded_error)
    new_strategy = staticmethod(new_strategy)
    compose_allocation_request = staticmethod(requests.compose_allocation_request)

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        pods: PodSource,
        sink: StatusSink,
        pools: Mapping[str, Selector],
        wait: Callable[[], object] | None = None,
        placement_modes: Mapping[str, str] | None = None,
        settings: AllocationSettings = AllocationSettings(),  # noqa: B008 -- frozen
        config: StrategyConfig = StrategyConfig(),  # noqa: B008 -- frozen
    ) -> None:
        """Begin without nodes.

        `clock`, in seconds, must be monotonic. `pods` says which pods exist, and `sink` takes the status of cards.
        `pools` are selectors of nodes by their labels, and `placement_modes` the strategies of some of them. `wait` is
        called until the allocator is ready; without it, a call that comes too early raises NotReadyError.
        """
        super().__init__(
            clock=clock,
            wait=wait,
            pools=pools,
            placement_modes=placement_modes or {},
            settings=settings,
            config=config,
        )
        self._pods, self._sink, self._settings = pods, sink, settings
        self._ending: set[str] = set()
        self.assume, self.commit, self.forget = self.lifecycle.assume, self.lifecycle.commit, self.lifecycle.forget
        self.rollback, self.notify_bound = self.lifecycle.rollback, self.lifecycle.notify_bound
        self.sweep_assumed = self.lifecycle.sweep_assumed

    # ---- cards and readiness ---------------------------------------------------------------------------------------

    def init_gpu_and_quota_store(self, nodes: Iterable[tuple[NodeInventory, Mapping[str, str]]]) -> None:
        """Read the cards of all nodes, each with the node's labels."""
        for inventory, labels in nodes:
            self.set_node(inventory, labels)

    def set_node(self, inventory: NodeInventory, labels: Mapping[str, str]) -> None:
        """Set the cards of a node. What pods have of them stays, whatever the report says of it.

        A card that does not say its TFLOPs has those of its model (`allocation.models`).
        """
        old = set(stores.gpus_of(self.ledger, inventory.node))
        self.ledger.set_node(rated(inventory, self._settings.models))
        self._labels[inventory.node] = dict(labels)
        self.lifecycle.dirty.mark(old | {card.uuid for card in inventory.cards})

    def drop_node(self, node: str) -> None:
        """Remove a node with its cards; what pods had there counts again if it comes back."""
        self.ledger.drop_node(node)
        self._labels.pop(node, None)

    def start_informer_for_gpu(
        self,
    ) -> tuple[Callable[[NodeInventory, Mapping[str, str]], None], Callable[[str], None]]:
        """Return what an informer has to call: with each state of a node, and with the name of a deleted node."""
        return self.set_node, self.drop_node

    def reconcile_allocation_state(self, running: Iterable[tuple[AllocRequest, str]]) -> None:
        """Record what running pods have, each with its node; what other pods had is freed."""
        found = {request.uid: (request, node) for request, node in running if request.gpu_names}
        for uid in [uid for uid in self.lifecycle.allocated if uid not in found]:
            self.lifecycle.rollback(uid)
        for request, node in found.values():
            self.lifecycle.restore(request, node)

    def setup_with_manager(
        self,
        nodes: Iterable[tuple[NodeInventory, Mapping[str, str]]],
        running: Iterable[tuple[AllocRequest, str]],
    ) -> None:
        """Read the cards and what pods have of them; the allocator is ready then."""
        self.init_gpu_and_quota_store(nodes)
        self.reconcile_allocation_state(running)
        self.set_allocator_ready()

    def sync_gpus_to_k8s(self) -> int:
        """Write the status of the cards that have changed and return how many; to be called every 10 seconds."""
        return self.lifecycle.dirty.sync(self._sink, self._gpu)

    def refresh_gpu_node_capacity(self, node: str) -> NodeCapacity | None:
        """Return the sums of a node; None if it has no cards."""
        return stores.capacity_of(self.ledger, node, self.lifecycle.limits_on(node))

    # ---- from request to end ---------------------------------------------------------------------------------------

    def alloc(self, request: AllocRequest) -> tuple[Gpu, ...]:
        """Choose cards for a pod and allocate them; for the errors see `check_quota_and_filter` and `bind`."""
        gpus, _ = self.check_quota_and_filter(request)
        return self.bind(self.select(request, gpus), request)

    def bind(self, names: Sequence[str], request: AllocRequest) -> tuple[Gpu, ...]:
        """Allocate the cards called `names` to a pod, all of them or none, and return them.

        Raises:
            AllocationError: one of them cannot be given to the pod.
        """
        self.lifecycle.assume(names, request)
        self.lifecycle.commit(request.uid)
        self.lifecycle.notify_bound(request.uid)
        return tuple(self._known(names))

    def is_committed(self, uid: str) -> bool:
        """Whether a pod is allocated."""
        return uid in self.lifecycle.allocated

    def unreserve_or_rollback(self, uid: str) -> None:
        """Undo what a pod has, assumed or allocated."""
        self.lifecycle.forget(uid)
        self.lifecycle.rollback(uid)

    def dealloc(self, uid: str) -> bool:
        """Free what an ended pod had, and return whether it had anything; a second time changes nothing."""
        self._ending.discard(uid)
        return self.lifecycle.dealloc(uid)

    def dealloc_async(self, uid: str) -> None:
        """Free what a pod has as soon as the API has it no more (`clean_up`)."""
        if self.is_committed(uid):
            self._ending.add(uid)

    def dealloc_by_pod_identifier(self, namespace: str, name: str) -> bool:
        """Free what the pod with this name had."""
        uid = self.lifecycle.uid_of(namespace, name)
        return uid is not None and self.dealloc(uid)

    def poll_ending(self) -> tuple[str, ...]:
        """Free what those of `dealloc_async` had that the API has no more, and return their UIDs."""
        self._ending &= self.lifecycle.allocated.keys()
        return self._free_ended(self._ending)

    def clean_up(self) -> tuple[str, ...]:
        """Free what pods had that the API has no more, and return their UIDs (`CLEAN_UP_CHECK_INTERVAL`)."""
        return self._free_ended(self.lifecycle.allocated)

    def adjust_allocation(
        self, uid: str, request: Amounts, limit: Amounts, *, dry_run: bool = False
    ) -> tuple[Mapping[str, Amounts], Amounts, Amounts]:
        """Change what a pod has of each card; return what its cards have left, and by how much request and limit grew.

        Raises:
            ScalingQuotaExceededError: a card or a quota has too little left; nothing is changed.
            AllocationError: the pod is not allocated, has MIG instances, or would have its compute in two measures.
        """
        for amounts in (request, limit):
            check_measure(amounts)
        old = self.lifecycle.allocated.get(uid)
        if old is None:
            raise AllocationError(f"pod {uid} is not allocated")
        new = msgspec.structs.replace(old, request=request, limit=limit)
        on_cards = self.lifecycle.on_cards
        done = adjustment.adjust(
            self.ledger,
            uid,
            self.lifecycle.charges_of(new),
            request=new.as_pod(limit),
            settings=self._settings,
            quotas=self._quotas.limits(old.pod.namespace),
            limit_delta=on_cards(limit, old.gpu_names) - on_cards(old.limit, old.gpu_names),
            dry_run=dry_run,
        )
        if not dry_run:
            self.lifecycle.resize(new, done.charges)
        return done.remaining, request - old.request, limit - old.limit

    # ---- views and policies ----------------------------------------------------------------------------------------

    def get_allocation_info(self) -> tuple[dict[str, Gpu], dict[str, frozenset[str]], dict[str, AllocRequest]]:
        """Return the cards by name, the pods by node, and the requests by UID."""
        gpus = {name: gpu for own in self.get_node_gpu_store().values() for name, gpu in own.items()}
        return gpus, self.get_node_worker_store_snapshot(), self.lifecycle.allocated

    def get_allocation_req_by_node_name(self, node: str) -> tuple[AllocRequest, ...]:
        """Return the requests of the allocated pods of a node."""
        allocated = self.lifecycle.allocated
        return tuple(allocated[uid] for uid in sorted(self.lifecycle.workers(node)) if uid in allocated)

    def get_node_gpu_store(self) -> dict[str, dict[str, Gpu]]:
        """Return the cards by node and name, what is assumed subtracted."""
        return {node: stores.gpus_of(self.ledger, node) for node in self.ledger.nodes}

    def get_node_worker_store_snapshot(self) -> dict[str, frozenset[str]]:
        """Return the UIDs of the pods of each node, assumed ones included."""
        return {node: self.lifecycle.workers(node) for node in self.ledger.nodes}

    def list_non_using_nodes(self) -> tuple[str, ...]:
        """Return the nodes without a pod, sorted."""
        return tuple(sorted(node for node, own in self.get_node_worker_store_snapshot().items() if not own))

    def has_allocation(self, namespace: str, name: str) -> bool:
        """Whether the pod with this name is allocated."""
        return self.lifecycle.uid_of(namespace, name) is not None

    def get_quota_store(self) -> QuotaStore:
        """Return the quotas and their use, through which quotas are set."""
        return self._quotas

    def set_max_worker_per_node(self, most: int | None) -> None:
        """Limit the pods with cards on a node from now on; pods that run stay."""
        self.ledger.set_rules(msgspec.structs.replace(self.ledger.rules, most_pods=most))

    @property
    def max_worker_per_node(self) -> int | None:
        """The most pods with cards on a node."""
        return self.ledger.rules.most_pods

    def set_isolation_policy(self, policy: IsolationPolicy) -> None:
        """Choose whether pods of different isolation modes may share a card (`static`) or not (`dynamic`)."""
        rules = msgspec.structs.replace(self.ledger.rules, locks_isolation=policy == "dynamic")
        self.ledger.set_rules(rules)

    @property
    def isolation_policy(self) -> IsolationPolicy:
        """Whether pods of different isolation modes may share a card."""
        return "dynamic" if self.ledger.rules.locks_isolation else "static"

    def is_gpu_isolation_compatible(self, request: AllocRequest, gpu: str) -> bool:
        """Whether the isolation policy lets a pod on a card."""
        return self.ledger.permits(request.isolation, gpu)

    def register_bind_handler(self, handler: BindHandler) -> None:
        """Call `handler` with the request of each pod that is bound."""
        self.lifecycle.bind_handlers.append(handler)

    def set_gang_waiting_probe(self, probe: Callable[[str], bool]) -> None:
        """Keep the assumption of a pod as long as `probe` says of its UID that it waits for its gang."""
        self.lifecycle.is_waiting_in_gang = probe

    def _gpu(self, name: str) -> Gpu | None:
        position = self.ledger.position(name)
        return stores.gpus_of(self.ledger, self.ledger.node(position[0]))[name] if position is not None else None

    def _free_ended(self, uids: Iterable[str]) -> tuple[str, ...]:
        allocated = self.lifecycle.allocated
        ended = [uid for uid in sorted(uids) if not self._pods.exists(allocated[uid].pod)]
        for uid in ended:
            self.dealloc(uid)
        return tuple(ended)
