"""From an assumption to its end: every change of what pods have, each of them whole or not at all."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from allocation import adjustment
from allocation.adjustment import NOTHING, Amounts
from allocation.allocation import Charge
from allocation.errors import AllocationError
from allocation.gpuallocator.quota_store import QuotaStore
from allocation.gpuallocator.requests import AllocRequest
from allocation.gpuallocator.stores import DirtyCards
from allocation.inventory import Card
from allocation.ledger.ledger import Ledger
from allocation.quota import Burst, MinimumRequest

ASSUMED_TTL_SECONDS: Final = 1800.0
MOST_FREED: Final = 4096
"""UIDs of ended pods that are remembered, so that a late event does not bring one of them back."""

BindHandler = Callable[[AllocRequest], None]


class Lifecycle:
    """What pods have, assumed or allocated, over one ledger, which nothing else may change meanwhile.

    Attributes:
        dirty: the cards whose status has to be written.
        is_waiting_in_gang: whether an assumed pod waits for its gang, so that its assumption does not end.
    """

    def __init__(self, ledger: Ledger, quotas: QuotaStore, clock: Callable[[], float]) -> None:
        """Change `ledger` and `quotas`; `clock`, in seconds, must be monotonic."""
        self.dirty = DirtyCards()
        self.is_waiting_in_gang: Callable[[str], bool] = lambda _: False
        self.bind_handlers: list[BindHandler] = []
        self._ledger, self._quotas, self._clock = ledger, quotas, clock
        self._assumed: dict[str, tuple[AllocRequest, float]] = {}
        self._allocated: dict[str, AllocRequest] = {}
        self._by_name: dict[tuple[str, str], str] = {}
        self._freed: dict[str, None] = {}

    # ---- reading ---------------------------------------------------------------------------------------------------

    @property
    def allocated(self) -> dict[str, AllocRequest]:
        """The requests of allocated pods by UID, each with the cards that it has."""
        return self._allocated.copy()

    @property
    def assumed(self) -> dict[str, AllocRequest]:
        """The same of assumed pods."""
        return {uid: request for uid, (request, _) in self._assumed.items()}

    def uid_of(self, namespace: str, name: str) -> str | None:
        """Return the UID of the allocated pod with this name."""
        return self._by_name.get((namespace, name))

    def was_freed(self, uid: str) -> bool:
        """Whether a pod is remembered as ended."""
        return uid in self._freed

    def workers(self, node: str) -> frozenset[str]:
        """Return the UIDs of the pods on a node, assumed ones included."""
        return frozenset(each.uid for each in self._ledger.reservations(node) if each.is_pod)

    def limits_on(self, node: str) -> Amounts:
        """Return what the pods on a node may use together, over all their cards."""
        found = (self._request(uid) for uid in self.workers(node))
        return sum((self.on_cards(each.limit, each.gpu_names) for each in found if each is not None), NOTHING)

    def on_cards(self, amounts: Amounts, names: Iterable[str]) -> Amounts:
        """Return what `amounts` of each of these cards are together, their compute in both measures."""
        return sum((_on_card(amounts, self._card(name)) for name in names), NOTHING)

    # ---- changing --------------------------------------------------------------------------------------------------

    def assume(self, names: Sequence[str], request: AllocRequest) -> AllocRequest:
        """Reserve the cards called `names` for a pod, and return its request with these names.

        Raises:
            AllocationError: there are no cards of that name, the pod has cards already, or the isolation policy, the
                most pods of the node, a quota or the free capacity forbids it. Nothing is changed then.
        """
        uid, node = request.uid, self._node_of(names, request)
        state = "assumed" if uid in self._assumed else "allocated" if uid in self._allocated else ""
        if state:
            raise AllocationError(f"pod {uid} is already {state}")
        charges = self._charges(names, request)
        self._quotas.check(request, use=self._use(charges))
        self._ledger.assume(uid, node, charges)
        self._freed.pop(uid, None)
        self._quotas.set_use(uid, request.pod.namespace, self._use(charges), _burst(charges))
        named = _with_names(request, names)
        self._assumed[uid] = (named, self._clock())
        return named

    def commit(self, uid: str) -> tuple[str, ...]:
        """Turn an assumption into an allocation and return its cards; a second time changes nothing.

        Raises:
            AllocationError: the pod is not assumed, or one of its cards is gone: then it has nothing afterwards.
        """
        if uid in self._allocated:
            return self._allocated[uid].gpu_names
        if uid not in self._assumed:
            raise AllocationError(f"pod {uid} is not assumed: assume it first")
        request, _ = self._assumed[uid]
        reservation = self._ledger.reservation(uid)
        gone = [name for name in request.gpu_names if self._ledger.position(name) is None]
        if reservation is None or gone:
            self.forget(uid)
            raise AllocationError(f"pod {uid} is not allocated: its cards {', '.join(gone)} are gone; assume others")
        del self._assumed[uid]
        self._ledger.record(uid, reservation.node, reservation.charges)
        self._set_allocated(request)
        return request.gpu_names

    def forget(self, uid: str) -> None:
        """Drop an assumption; ignore a pod that is not assumed."""
        if self._assumed.pop(uid, None) is not None:
            self._release(uid)

    def rollback(self, uid: str) -> None:
        """Undo an allocation, as if the pod had never had it; ignore a pod that is not allocated."""
        request = self._allocated.pop(uid, None)
        if request is not None:
            self._by_name.pop((request.pod.namespace, request.pod.name), None)
            self.dirty.mark(request.gpu_names)
            self._release(uid)

    def dealloc(self, uid: str) -> bool:
        """Free what an ended pod had, and return whether it had anything."""
        if uid not in self._allocated:
            return False
        self.rollback(uid)
        self._freed[uid] = None
        while len(self._freed) > MOST_FREED:
            del self._freed[next(iter(self._freed))]
        return True

    def restore(self, request: AllocRequest, node: str) -> None:
        """Record what a pod has by the API, which is true even beyond the capacity; ignore a pod that has ended."""
        if request.uid in self._freed or request.uid in self._allocated:
            return
        self._assumed.pop(request.uid, None)
        charges = self._charges(request.gpu_names, request)
        self._ledger.record(request.uid, node, charges)
        self._quotas.set_use(request.uid, request.pod.namespace, self._use(charges), _burst(charges))
        self._set_allocated(request)

    def resize(self, request: AllocRequest, charges: Sequence[Charge]) -> None:
        """Keep the new size of a pod, which the ledger has already."""
        self._quotas.set_use(request.uid, request.pod.namespace, self._use(charges), _burst(charges))
        self._set_allocated(request)

    def sweep_assumed(self) -> tuple[str, ...]:
        """Drop what is assumed for 30 minutes, unless its gang waits, and return the UIDs."""
        limit = self._clock() - ASSUMED_TTL_SECONDS
        old = [uid for uid, (_, since) in self._assumed.items() if since <= limit and not self.is_waiting_in_gang(uid)]
        for uid in old:
            self.forget(uid)
        return tuple(old)

    def notify_bound(self, uid: str) -> None:
        """Tell the handlers that a pod is bound with its allocation."""
        for handler in self.bind_handlers if uid in self._allocated else ():
            handler(self._allocated[uid])

    def charges_of(self, request: AllocRequest) -> tuple[Charge, ...]:
        """Return what the cards of a pod are charged with."""
        return self._charges(request.gpu_names, request)

    def _set_allocated(self, request: AllocRequest) -> None:
        self._allocated[request.uid] = request
        self._by_name[request.pod.namespace, request.pod.name] = request.uid
        self.dirty.mark(request.gpu_names)

    def _release(self, uid: str) -> None:
        self._ledger.release(uid)
        self._quotas.remove_use(uid)

    def _request(self, uid: str) -> AllocRequest | None:
        assumed = self._assumed.get(uid)
        return assumed[0] if assumed is not None else self._allocated.get(uid)

    def _node_of(self, names: Sequence[str], request: AllocRequest) -> str:
        """Return the node of all these cards, which must be as many as requested."""
        if not names:
            raise AllocationError(f"no cards are named for pod {request.uid}")
        if len(names) != request.count or max(Counter(names).values()) > 1:
            raise AllocationError(f"pod {request.uid} requests {request.count} different cards, not {', '.join(names)}")
        nodes = set()
        for name in names:
            position = self._ledger.position(name)
            if position is None:
                raise AllocationError(f"no node has card {name}")
            nodes.add(self._ledger.node(position[0]))
        if len(nodes) > 1:
            raise AllocationError(f"the cards {', '.join(names)} are on several nodes: {', '.join(sorted(nodes))}")
        return nodes.pop()

    def _charges(self, names: Iterable[str], request: AllocRequest) -> tuple[Charge, ...]:
        """Return what each card is charged: an instance all that it has, as does a whole card by its mark."""
        return tuple(_charge(name, self._card(name), request) for name in sorted(names))

    def _card(self, name: str) -> Card | None:
        position = self._ledger.position(name)
        inventory = self._ledger.inventory(self._ledger.node(position[0])) if position is not None else None
        return inventory.cards[position[1]] if inventory is not None and position is not None else None

    def _use(self, charges: Iterable[Charge]) -> MinimumRequest:
        """Return what cards amount to for a quota; a whole card with all that it has."""
        use = MinimumRequest()
        for charge in charges:
            card, has = self._card(charge.uuid) if charge.whole else None, adjustment.charged(self._ledger, charge)
            if card is not None:
                has = Amounts(card.memory_mib, card.cores, card.tflops * card.cores)
            use += MinimumRequest(has.memory_mib, has.cores, 1, has.tflops)
        return use


def _charge(name: str, card: Card | None, request: AllocRequest) -> Charge:
    if card is not None and card.instance is not None:
        return Charge(name, card.memory_mib, card.cores, 1, card.parent, isolation=request.isolation)
    is_whole, asked = request.isolation == "shared", request.request
    own = _on_card(asked, card)
    burst = Amounts() if is_whole else _on_card(request.limit, card) - own
    return Charge(
        name,
        asked.memory_mib,
        own.cores,
        1,
        "",
        is_whole,
        asked.tflops,
        isolation=request.isolation,
        burst_memory_mib=max(burst.memory_mib, 0),
        burst_cores=max(burst.cores, 0),
    )


def _burst(charges: Iterable[Charge]) -> Burst:
    """Return how much more than it requests a pod may use of its cards."""
    each = tuple(charges)
    return Burst(sum(charge.burst_memory_mib for charge in each), sum(charge.burst_cores for charge in each))


def _on_card(amounts: Amounts, card: Card | None) -> Amounts:
    """Return amounts of a card with its compute in both measures; of one that is not known, as they are."""
    rate = card.tflops if card is not None else 0
    if amounts.tflops:
        return msgspec.structs.replace(amounts, cores=amounts.tflops // rate if rate else 0)
    return msgspec.structs.replace(amounts, tflops=amounts.cores * rate)


def _with_names(request: AllocRequest, names: Iterable[str]) -> AllocRequest:
    return msgspec.structs.replace(request, gpu_names=tuple(names))
