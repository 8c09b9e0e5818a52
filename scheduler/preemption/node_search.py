"""Searches one node for the cheapest pods that have to go for another one."""

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from allocation import victims
from allocation.allocation import Charge, charges
from allocation.fairness.queue_spec import QueueKey
from allocation.ledger import ledger_copy
from allocation.placement import placement
from allocation.placement.node_cards import NodeCards
from allocation.placement.query import PlacementQuery
from allocation.placement.rejection import Rejection
from allocation.quota import UNLIMITED, Headroom, minimum_request
from allocation.steps import Steps, finish
from allocation.victims import Candidate, Cost, Limits
from scheduler.cycle import lifts
from scheduler.gpu_requirements import GpuRequirements
from scheduler.objects import Pod
from scheduler.preemption.accounts import Accounts, OwnPods
from scheduler.preemption.eligibility import Eligibility, EligiblePod, EligibleUnit
from scheduler.preemption.reclaim import Reclaim
from scheduler.preemption.releasable import LEAVING
from scheduler.state.cluster_state import ClusterState

_FEW: Final = 16
"""At least twice as many units of a pod's own accounts are considered, if there are enough."""


class Preemption(msgspec.Struct, frozen=True):
    """The pods that have to go, and what the preemptor gets.

    Attributes:
        node: where the pod will fit.
        charges: what it will take of each card there.
        victims: the pods that have to be evicted, the most important first; empty if none has to be.
        leaving: the UIDs of the pods that end already: those on the node and, if quotas are exceeded, on others.
        cost: by which choices are compared: the cost of the victims, the memory they hold, and the node.
    """

    node: str
    charges: tuple[Charge, ...]
    victims: tuple[EligiblePod, ...]
    leaving: frozenset[str]
    cost: tuple[Cost, int, str]

    @property
    def is_last_resort(self) -> bool:
        """Whether it violates a budget, or a victim may still be ending when the pod does not wait for it any more."""
        return any(each.is_slow or each.violates for each in self.victims)

    @property
    def is_reclaim(self) -> bool:
        """Whether pods are preempted because their queue has more than its entitlement."""
        return any(each.reclaimed_for is not None for each in self.victims)


class NodeSearch:
    """The search for one pod.

    Attributes:
        pod: the pod.
        requirements: its GPU requirements.
        below: the pods that it may preempt have a priority below this one.
        earlier: the pods that are preempted already for others of its gang.
    """

    def __init__(
        self,
        state: ClusterState,
        eligibility: Eligibility,
        pod: Pod,
        requirements: GpuRequirements,
        *,
        gone: Iterable[str] = (),
        earlier: Sequence[EligiblePod] = (),
    ) -> None:
        """Search in `state`, from which the pods `gone` will have gone in any case.

        So will those `earlier`, which are preempted for others of the pod's gang, and count in their budgets.
        """
        self.pod = pod
        self.requirements = requirements
        self.earlier = earlier
        self._state = state
        self._eligibility = eligibility
        self._accounts = Accounts(state, eligibility, pod)
        self._gone = frozenset(gone).union(each.pod.uid for each in earlier)
        self._spent = Counter(each.candidate.budget for each in earlier if each.budget is not None)
        self._units: dict[str, EligibleUnit] = {}
        self._own: OwnPods | None = None
        self._own_units: dict[int, dict[str, EligibleUnit]] = {}
        """Those of the accounts below a priority, which are the same for all nodes."""
        self._rejected_nodes = state.rejected_nodes.lasting(requirements)
        found = eligibility.reclaims.of(pod, requirements)
        self._reclaim = found if isinstance(found, Reclaim) else None
        self.below = max(pod.spec.priority, self._reclaim.below) if self._reclaim is not None else pod.spec.priority
        self._lifted = state.holds.reserved_for(pod.uid) | lifts.lower(state, pod)

    def may_free(self, node: str) -> bool:
        """Whether a node is worth a search: in a full cluster, few may have pods of queues with a surplus."""
        reclaim, owner = self._reclaim, self._state.fair_share.use.owner
        if reclaim is None:
            return True
        return any(reclaim.has_surplus(owner(uid)) or self._is_lower(uid) for uid in self._pods_on(node))

    def cheapest_on(self, node: str, *, below: int) -> Steps[Preemption | None]:
        """Return the cheapest pods below a priority that have to go for the pod to fit on a node; None if none help.

        Where its quotas are exceeded, pods of the same account on other nodes are among them.
        """
        here = yield from self._units_of(self._pods_on(node), below)
        leaving = self._leaving_on(node)
        if self._headroom(self._released(leaving)) is not None:
            found_here = yield from self._cheapest_of(here, node, leaving)
            if found_here is not None:
                return found_here
        if self._own is None:
            self._own = yield from self._accounts.own_pods()
        leaving |= self._own.leaving
        if below not in self._own_units:
            uids = [unit[0].pod.uid for unit in self._own.units]
            self._own_units[below] = yield from self._units_of(uids, below)
        own = self._needed(leaving, self._own_units[below])
        return (yield from self._cheapest_of(own | here, node, leaving)) if self._own.leaving or own else None

    def confirm(self, earlier: Preemption) -> Steps[Preemption | None]:
        """Return an earlier choice by what is true now; None if its victims are not enough any more."""
        leaving = self._leaving_on(earlier.node) | frozenset(filter(self._is_leaving, earlier.leaving))
        units = yield from self._units_of((each.pod.uid for each in earlier.victims), self.below)
        return (yield from self._cheapest_of(units, earlier.node, leaving))

    def _cheapest_of(
        self, units: Mapping[str, EligibleUnit], node: str, leaving: frozenset[str]
    ) -> Steps[Preemption | None]:
        """Return the cheapest of some units that have to go for the pod to fit on a node."""
        if not (units or leaving or self._gone):
            return None  # nothing becomes free
        eligible = {each.pod.uid: each for unit in units.values() for each in unit}
        going, absent = self._released(leaving), leaving | self._gone | self._lifted
        trial = NodeTrial(
            self._state, node, self.pod, self.requirements, absent=absent, rejected_nodes=self._rejected_nodes
        )

        def charges_without(gone: frozenset[str]) -> tuple[Charge, ...] | None:
            headroom = self._headroom([*going, *(eligible[uid] for uid in gone)])
            return trial.place(gone, headroom) if headroom is not None else None

        def fits_without(gone: frozenset[str]) -> bool:
            return charges_without(gone) is not None

        def permits(gone: frozenset[str]) -> bool:
            return self._reclaim is None or _is_permitted(self._reclaim, [eligible[uid] for uid in gone])

        guards = ((each.candidate.budget, each.budget) for each in eligible.values())
        budgets = {name: budget.allowed - self._spent[name] for name, budget in guards if budget is not None}
        candidates = [tuple(each.candidate for each in unit) for unit in units.values()]
        chosen = yield from victims.cheapest(candidates, fits_without, Limits(budgets, permits))
        if chosen is None:
            return None
        placed = charges_without(frozenset(each.uid for each in chosen)) or ()
        found = self._preemption(node, chosen, eligible, leaving, placed)
        if self._reclaim is not None and found.is_reclaim and not self._reclaim.may_have(placed):
            return None
        return found

    def _headroom(self, gone: Iterable[EligiblePod]) -> Headroom | None:
        """Return what the quotas leave without the pods `gone`; None if that is certainly too little."""
        minimum, headroom = minimum_request(self.requirements.request), self._accounts.headroom(gone)
        if headroom is None or minimum.is_within(headroom):
            return headroom
        return None

    def _preemption(
        self,
        node: str,
        chosen: Sequence[Candidate],
        eligible: Mapping[str, EligiblePod],
        leaving: frozenset[str],
        charges: tuple[Charge, ...],
    ) -> Preemption:
        gone = tuple(eligible[each.uid] for each in chosen)
        reservations = (self._state.ledger.reservation(each.uid) for each in chosen)
        memory = sum(charge.memory_mib for each in reservations if each is not None for charge in each.charges)
        return Preemption(node, charges, gone, leaving, (victims.cost(chosen), memory, node))

    # ---- pods ------------------------------------------------------------------------------------------------------

    def _needed(self, leaving: frozenset[str], units: dict[str, EligibleUnit]) -> dict[str, EligibleUnit]:
        """Return the first units that may be needed to make room in the quotas, and as many again."""
        released, count = self._released(leaving), _FEW
        while count < len(units):
            if self._headroom([*released, *itertools.chain(*itertools.islice(units.values(), count))]) is not None:
                break
            count *= 2
        return dict(itertools.islice(units.items(), 2 * count))

    def _pods_on(self, node: str) -> list[str]:
        return [each.uid for each in self._state.ledger.reservations(node) if each.is_pod]

    def _is_lower(self, uid: str) -> bool:
        """Whether a pod ends already, or has a lower priority."""
        level = self._eligibility.level(uid)
        return level is not None and level < self.pod.spec.priority

    def _is_leaving(self, uid: str) -> bool:
        return self._eligibility.level(uid) == LEAVING

    def _leaving_on(self, node: str) -> frozenset[str]:
        return frozenset(filter(self._is_leaving, self._pods_on(node)))

    def _released(self, leaving: Iterable[str]) -> list[EligiblePod]:
        """Return the pods that go in any case: those that end already, and those that `gone` named."""
        running = (self._state.running.get(uid) for uid in {*leaving, *self._gone})
        return [EligiblePod(each, self._eligibility.account(each)) for each in running if each is not None]

    def _units_of(self, uids: Iterable[str], below: int) -> Steps[dict[str, EligibleUnit]]:
        """Return the units below a priority to which some pods belong that stay otherwise, by their first UIDs."""
        found = {}
        for uid in uids:
            if uid in self._gone:
                continue
            if uid not in self._units:
                yield
            unit = self._unit(uid)
            if unit and max(each.pod.spec.priority for each in unit) < below:
                found[unit[0].pod.uid] = unit
        return found

    def _unit(self, uid: str) -> EligibleUnit:
        """Return the unit of a pod, without the pods that go in any case; empty if it has to stay."""
        if uid not in self._units:
            unit = tuple(
                each for each in self._eligibility.unit(uid, self.pod, self._reclaim) if each.pod.uid not in self._gone
            )
            self._units |= {uid: ()} | dict.fromkeys((each.pod.uid for each in unit), unit)
        return self._units[uid]


def _is_permitted(reclaim: Reclaim, gone: Iterable[EligiblePod]) -> bool:
    """Whether no queue from which cards are reclaimed would have less than its entitlement without these pods."""
    of_queue: dict[QueueKey, list[str]] = {}
    reclaimed = set[QueueKey]()
    for each in gone:
        of_queue.setdefault(each.account, []).append(each.pod.uid)
        if each.reclaimed_for is not None:
            reclaimed.add(each.account)
    return all(reclaim.permits(account, of_queue[account]) for account in reclaimed)


class NodeTrial:
    """Tries the pod on a copy of one node without the pods that are leaving it, and then without others."""

    def __init__(
        self,
        state: ClusterState,
        node: str,
        pod: Pod,
        requirements: GpuRequirements,
        *,
        absent: Iterable[str],
        rejected_nodes: Collection[str],
    ) -> None:
        """Try `pod` on `node` without the reservations `absent`; the nodes `rejected_nodes` do not take it."""
        self._state = state
        self._node = node
        self._pod = pod
        self._requirements = requirements
        self._rejected_nodes = rejected_nodes
        self._absent = frozenset(absent)
        self._ledger = ledger_copy.of_node(state.ledger, node, without=self._absent)
        self._pods = frozenset(each.uid for each in self._ledger.reservations(node))
        self._held: dict[str, frozenset[int]] = {}
        """The positions of the cards of each pod."""
        self._fitting: list[Sequence[int]] = []
        """Those that fit each container while no other pods are gone. Empty for a pod that needs one card only, which
        any pod that goes may free."""
        cards, containers = self._cards(), requirements.request.gpu_containers
        if cards is not None and any(each.count > 1 for each in containers):
            self._held = {each.uid: self._ledger.cards_of(each) for each in self._ledger.reservations(node)}
            self._fitting = [cards.fitting(each, UNLIMITED) for each in containers]
        self._placed: dict[tuple[frozenset[str], Headroom], tuple[Charge, ...] | None] = {}

    def place(self, gone: frozenset[str], headroom: Headroom) -> tuple[Charge, ...] | None:
        """Return what the pod takes of each card once the pods `gone` are gone as well; None if it does not fit."""
        key = gone.intersection(self._pods), headroom
        if key not in self._placed:
            self._placed[key] = self._place(*key)
        return self._placed[key]

    def _place(self, gone: frozenset[str], headroom: Headroom) -> tuple[Charge, ...] | None:
        if self._node in self._rejected_nodes or not self._may_have_cards(gone):
            return None
        request = self._requirements.request
        self._ledger.leave_out(gone)
        # Most often there are too few cards, and that costs least to find.
        if not self._has_cards(headroom) or not self._is_admitted(gone):
            return None
        query = PlacementQuery(request, self._requirements.constraints, headroom)
        placed = placement.place_on(self._ledger, query, self._node)
        return None if isinstance(placed, Rejection) else charges(placed, request)

    def _may_have_cards(self, gone: frozenset[str]) -> bool:
        """Whether enough cards fit already, or are held by the pods `gone`: others do not change when these go."""
        if not self._fitting or self._ledger.rules.most_pods is not None:
            return True  # of a full node, any pod that goes makes all cards fit
        freed = frozenset[int]().union(*(self._held[uid] for uid in gone))
        pairs = zip(self._fitting, self._requirements.request.gpu_containers, strict=True)
        return all(len(freed.union(fitting)) >= container.count for fitting, container in pairs)

    def _has_cards(self, headroom: Headroom) -> bool:
        """Whether each container would find enough cards if it were alone; no reasons are found."""
        cards, containers = self._cards(), self._requirements.request.gpu_containers
        return cards is not None and all(
            len(cards.fitting(each, headroom, limit=each.count)) == each.count for each in containers
        )

    def _cards(self) -> NodeCards | None:
        """Return the cards of the node as they are now; None without an inventory."""
        row, request = self._ledger.row(self._node), self._requirements.request
        if row is None:
            return None
        return NodeCards(self._ledger, row, self._requirements.constraints, request.isolation)

    def _is_admitted(self, gone: frozenset[str]) -> bool:
        """Whether the node takes the pod in every other respect; in extender mode kube-scheduler evaluates that."""
        state, count = self._state, sum(each.count for each in self._requirements.own.gpu_containers)
        absent = self._absent | gone
        if state.node_filter.is_short(self._node, count, without=absent):
            return False
        if not state.has_queue:
            return True
        return bool(finish(state.node_filter.filter(self._pod, (self._node,), without=absent)).fitting)
