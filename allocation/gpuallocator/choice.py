"""Which cards a pod can have, and which of them are best: everything that changes nothing.

Whether a card fits, what a quota leaves and which MIG instance suits is decided by the scheduler's own functions.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from allocation import label_selector, mig
from allocation.errors import AllocationError
from allocation.gpuallocator import filters, stores
from allocation.gpuallocator.filters import Cluster, Details, NoCardsError
from allocation.gpuallocator.lifecycle import Lifecycle
from allocation.gpuallocator.quota_store import QuotaStore
from allocation.gpuallocator.requests import AllocRequest
from allocation.gpuallocator.stores import Gpu
from allocation.gpuallocator.strategies import Strategy, StrategyConfig, new_strategy
from allocation.label_selector import Selector
from allocation.ledger.ledger import Ledger
from allocation.ledger.ledger_copy import LedgerCopy
from allocation.mig import MigProfile, Slices
from allocation.settings import AllocationSettings


class NotReadyError(AllocationError):
    """The allocations of running pods are not read yet."""


class CardChooser:
    """Chooses cards of one ledger.

    Attributes:
        ledger: the cards, which only the allocator may change.
        lifecycle: what pods have.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        wait: Callable[[], object] | None,
        pools: Mapping[str, Selector],
        placement_modes: Mapping[str, str],
        settings: AllocationSettings,
        config: StrategyConfig,
    ) -> None:
        self.ledger = Ledger(settings.sharing)
        self._quotas = QuotaStore(settings)
        self.lifecycle = Lifecycle(self.ledger, self._quotas, clock)
        self._wait = wait
        self._pools, self._modes, self._config = dict(pools), dict(placement_modes), config
        self._labels: dict[str, Mapping[str, str]] = {}
        self._is_ready = False

    # ---- readiness -------------------------------------------------------------------------------------------------

    def set_allocator_ready(self) -> None:
        """Let waiting calls go on."""
        self._is_ready = True

    def stop(self) -> None:
        """Take no more requests."""
        self._is_ready, self._wait = False, None

    @property
    def is_ready(self) -> bool:
        """Whether requests are taken."""
        return self._is_ready

    def wait_until_ready(self) -> None:
        """Wait by the function that the constructor got.

        Raises:
            NotReadyError: the constructor got no such function, or the allocator is stopped.
        """
        while not self._is_ready:
            if self._wait is None:
                raise NotReadyError("the allocator is not ready: call setup_with_manager first")
            self._wait()

    # ---- choosing cards --------------------------------------------------------------------------------------------

    def filter(
        self, request: AllocRequest, gpus: Collection[str], *, simulate: bool = False
    ) -> tuple[tuple[str, ...], Details]:
        """Return the cards among `gpus` that a pod can have, and what each stage left out if it is simulated.

        Raises:
            NoCardsError: no node has as many as the pod requests.
            AllocationError: the isolation policy is dynamic, which excludes partitions.
        """
        self._check_policy(request)
        return filters.apply(Cluster(self.ledger, self._labels), request, gpus, simulate=simulate)

    def check_quota_and_filter(
        self, request: AllocRequest, *, simulate: bool = False
    ) -> tuple[tuple[str, ...], Details]:
        """Wait until ready, check the quotas and the pool, filter its cards, and leave out nodes that are full.

        Raises:
            QuotaExceededError: a quota allows less.
            NoCardsError: no card is left; with the details if it is simulated.
        """
        self.wait_until_ready()
        self._quotas.check(request)
        gpus = self._gpus_of_pool(request.pool)
        left, details = self.filter(request, gpus, simulate=simulate)
        if not left:
            raise NoCardsError(f"no card of pool {request.pool} fits pod {request.uid}", details)
        free = tuple(name for name in left if not self.ledger.is_full(self._row(name)))
        if not free:
            most = self.ledger.rules.most_pods
            raise NoCardsError(f"each node with cards that fit pod {request.uid} has {most} pods already", details)
        return free, details

    def filter_with_preempt(self, request: AllocRequest, victims: Collection[str]) -> tuple[str, ...]:
        """Return the cards on the nodes of the pods with the UIDs `victims` that fit once they are gone.

        Raises:
            AllocationError: a victim has no cards, or a card of one is gone.
            NoCardsError: no node has as many as the pod requests.
        """
        self._check_policy(request)
        nodes = {self._node_of_victim(uid) for uid in victims}
        if not nodes:
            raise AllocationError(f"no node is affected: no pod is preempted for pod {request.uid}")
        return self._filter(self._without(nodes, victims), request)

    def check_quota_and_filter_single_node_preempt(
        self, node: str, request: AllocRequest, victims: Collection[str]
    ) -> tuple[str, ...]:
        """Return the cards of a node that fit once the pods with the UIDs `victims` are gone, which frees quota, too.

        Only victims in the namespace of the pod free any, and none helps against a limit of a single pod.

        Raises:
            QuotaExceededError: a quota still allows less.
            NoCardsError: the node has fewer than the pod requests.
        """
        self._check_policy(request)
        self._quotas.check(request, without=victims)
        copy = self._without([node], victims)
        left, row = self._filter(copy, request), copy.row(node)
        if len(left) < request.count or row is None or copy.is_full(row):
            raise NoCardsError(f"node {node} has too few cards for pod {request.uid} even without the victims")
        return left

    def get_scoring_strategy(self, request: AllocRequest) -> Strategy:
        """Return the strategy of the request's pool."""
        return new_strategy(self._modes.get(request.pool, ""), self._config)

    def score(self, request: AllocRequest, gpus: Iterable[str]) -> dict[str, dict[str, int]]:
        """Return the score of each card, 0 to 100, by node and name."""
        strategy, scores = self.get_scoring_strategy(request), dict[str, dict[str, int]]()
        for gpu in self._known(gpus):
            scores.setdefault(gpu.node, {})[gpu.name] = strategy.score(gpu.use)
        return scores

    def select(self, request: AllocRequest, gpus: Iterable[str]) -> tuple[str, ...]:
        """Return the best of `gpus`, all on one node, whose score is that of those given.

        Raises:
            AllocationError: no node has as many as the pod requests.
        """
        return self.get_scoring_strategy(request).select_gpus((gpu.use for gpu in self._known(gpus)), request.count)

    def select_from_store(self, request: AllocRequest, gpus: Iterable[str]) -> tuple[str, ...]:
        """Return the same, but the score of a node is that of all its cards."""
        uses = [gpu.use for gpu in self._known(gpus)]
        own = {node: stores.gpus_of(self.ledger, node) for node in {use.node for use in uses}}
        every = {node: [gpu.use for gpu in gpus.values()] for node, gpus in own.items()}
        return self.get_scoring_strategy(request).select_gpus(uses, request.count, all_cards=every)

    def get_matched_partition(self, request: AllocRequest, gpu: str) -> tuple[MigProfile, Slices] | None:
        """Return the profile and the place of a new MIG instance for a pod on a card; None if it has none."""
        inventory = self.ledger.inventory(self._node(gpu))
        cards = inventory.cards if inventory is not None else ()
        profiles, rate = next(((card.mig_profiles, card.tflops) for card in cards if card.uuid == gpu), ((), 0))
        taken = [own.slices for card in cards if (own := card.instance) and own.parent == gpu and own.slices]
        container, only = request.container, request.partition_template
        cores = container.least_cores_on(rate)
        return mig.suitable(profiles, memory_on=container.memory_on, cores=cores, taken=taken, only=only)

    # ---- helpers ---------------------------------------------------------------------------------------------------

    def _check_policy(self, request: AllocRequest) -> None:
        if self.ledger.rules.locks_isolation and request.isolation == "partitioned":
            raise AllocationError(
                "the isolation policy is dynamic, which excludes partitions: choose another isolation"
            )

    def _without(self, nodes: Collection[str], victims: Collection[str]) -> LedgerCopy:
        """Return some nodes without the pods with the UIDs `victims`."""
        copy = LedgerCopy()
        for node in sorted(nodes):
            copy.add_node(self.ledger, node, without=victims)
        return copy

    def _filter(self, copy: LedgerCopy, request: AllocRequest) -> tuple[str, ...]:
        """Return the cards of copied nodes that a pod can have."""
        gpus = [name for node in copy.nodes for name in stores.gpus_of(copy, node)]
        return filters.apply(Cluster(copy, self._labels), request, gpus, simulate=False)[0]

    def _node_of_victim(self, uid: str) -> str:
        held = self.ledger.reservation(uid)
        if held is None:
            raise AllocationError(f"pod {uid}, which would be preempted, has no cards")
        for charge in held.charges:
            if self.ledger.position(charge.uuid) is None:
                raise AllocationError(f"card {charge.uuid} of pod {uid}, which would be preempted, is gone")
        return held.node

    def _gpus_of_pool(self, pool: str) -> list[str]:
        if not pool:
            raise AllocationError("the request names no pool of nodes")
        selector = self._pools.get(pool)
        nodes = [node for node in self.ledger.nodes if label_selector.accepts(selector, self._labels[node])]
        gpus = [name for node in nodes for name in stores.gpus_of(self.ledger, node)]
        if not gpus:
            raise NoCardsError(f"pool {pool} has no cards")
        return gpus

    def _node(self, gpu: str) -> str:
        return self.ledger.node(self._row(gpu))

    def _row(self, gpu: str) -> int:
        position = self.ledger.position(gpu)
        if position is None:
            raise AllocationError(f"no node has card {gpu}")
        return position[0]

    def _known(self, names: Iterable[str]) -> list[Gpu]:
        wanted = dict.fromkeys(names)
        by_node = {node: stores.gpus_of(self.ledger, node) for node in {self._node(name) for name in wanted}}
        return [by_node[self._node(name)][name] for name in wanted]
