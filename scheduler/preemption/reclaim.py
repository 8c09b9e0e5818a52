"""Reclaim: a pod of a queue that has less than its entitlement may preempt pods of queues that have more than theirs.

This is a second reason for which a pod may be preempted; all else is as in any other preemption. It goes by what queues
will have once the pods that end already are gone, so several reclaims together take from no queue more than its
surplus.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable

import msgspec

from allocation.allocation import Charge
from allocation.errors import AllocationError
from allocation.fairness import reclaim
from allocation.fairness.queue_spec import QueueKey
from allocation.fairness.reclaim import Entitlements, Holding, Rank, Turnover
from allocation.fairness.shares import NOTHING, Amounts, added, subtracted
from allocation.ledger.ledger import Ledger
from allocation.quota import minimum_request
from allocation.victims import MOST_PRIORITY
from cluster.metadata import unix_seconds
from scheduler.fairness.standings import Standings
from scheduler.fairness.use import Use
from scheduler.filters import resources
from scheduler.gpu_requirements import GpuRequirements
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState

_MAY = "it may reclaim cards from queues above their entitlement now"
_ENTITLED = "{queue} has, or would have then, more than its entitlement"
_WAITS = "it may reclaim cards from queues above their entitlement once it has waited for {seconds} s more"
_TURNOVER = "{queue} has reclaimed as much as it is entitled to within the last hour"


class NoReclaim(msgspec.Struct, frozen=True):
    """A pod reclaims nothing now.

    Attributes:
        why: the reason; empty if its queue never reclaims.
    """

    why: str = ""


class Reclaims:
    """Which pods may reclaim cards.

    Attributes:
        turnover: what queues have reclaimed lately.
    """

    def __init__(self, state: ClusterState, *, unix: Callable[[], float], is_leaving: Callable[[str], bool]) -> None:
        """Go by `state`; `unix` returns the time in Unix seconds, and `is_leaving` whether a pod ends in time."""
        self.turnover = Turnover(unix)
        self._state = state
        self._unix = unix
        self._is_leaving = is_leaving

    def has_waited(self, pod: Pod) -> bool:
        """Whether a pod has waited for so long that it may reclaim cards."""
        return bool(self._state.fair_share.reclaiming) and self.seconds_left(pod) == 0

    def seconds_left(self, pod: Pod) -> float | None:
        """Return how long a pod has to wait until it may reclaim cards; None if its queue never reclaims.

        It waits from its creation, so a new leader does not begin to count again. Behind kube-scheduler nothing is
        reclaimed: there, the order of pods does not depend on shares, so others could get what becomes free.
        """
        fair_share = self._state.fair_share
        spec = fair_share.queues.spec(fair_share.key(pod))
        if spec.reclaim == "Never" or self._state.is_external(pod):
            return None
        created = pod.metadata.creation_timestamp
        waited = self._unix() - unix_seconds(created) if created else 0.0
        return min(max(0.0, spec.reclaim_after_seconds - waited), spec.reclaim_after_seconds)

    def of(self, pod: Pod, requirements: GpuRequirements) -> "Reclaim | NoReclaim":
        """Return what a pod may reclaim at this moment."""
        left = self.seconds_left(pod)
        if left is None:
            return NoReclaim()
        if left:
            return NoReclaim(_WAITS.format(seconds=math.ceil(left)))
        found = Reclaim(self._state, pod, self.turnover, is_leaving=self._is_leaving)
        least = minimum_request(requirements.request)
        why = found.objection((least.memory_mib, least.cores, least.cards, least.tflops, 0, 0))
        return NoReclaim(why) if why else found

    def words(self, pod: Pod) -> str:
        """Return whether a pod that requests cards may reclaim some, or why not; empty if its queue never reclaims."""
        try:
            found = self.of(pod, self._state.requirements.unlimited(pod))
        except AllocationError:
            return ""
        return found.why if isinstance(found, NoReclaim) else _MAY

    def note(self, pod: Pod, charges: Iterable[Charge]) -> None:
        """Note that pods are preempted so that a pod gets its cards, because its queue is entitled to them."""
        key = self._state.fair_share.key(pod)
        self.turnover.note(str(key), pod.uid, added(_of_cards(self._state.ledger, charges), _of_node(self._state, pod)))

    def forget(self, pod: Pod) -> None:
        """Note that no pod was preempted for one after all."""
        self.turnover.forget(str(self._state.fair_share.key(pod)), pod.uid)


class Reclaim:
    """What a pod may reclaim at one moment.

    Attributes:
        key: its queue.
        below: the pods that it may preempt have a priority below this one.
    """

    def __init__(self, state: ClusterState, pod: Pod, turnover: Turnover, *, is_leaving: Callable[[str], bool]) -> None:
        """Read what queues have in `state`; `is_leaving` returns whether a pod ends in time."""
        fair_share, reserved = state.fair_share, state.holds.reserved_for(pod.uid)
        self.key = key = fair_share.key(pod)
        spec = fair_share.queues.spec(key)
        self._weight = spec.weight
        self._entitlements = Entitlements(
            fair_share.capacity.total(), Standings(fair_share, state.queue.waiting).weights
        )
        self.below = MOST_PRIORITY if spec.reclaim == "Always" else pod.spec.priority + 1
        self._turnover = turnover
        self._ledger = state.ledger
        self._of_node = _of_node(state, pod)
        self._fair_share = fair_share
        self._reclaim = spec.reclaim
        self._rank = Rank(spec.priority, pod.spec.priority)
        self._own = added(fair_share.use.of(key).amounts, fair_share.held.of(key, without=reserved).amounts)
        nominations = (hold for hold in state.holds.nominations if hold.uid != pod.uid)
        self._going = frozenset(filter(is_leaving, fair_share.leaving)).union(*(each.awaited for each in nominations))
        self._released: defaultdict[QueueKey | None, Amounts] = defaultdict(lambda: NOTHING)
        for uid in self._going:
            owner = fair_share.use.owner(uid)
            self._released[owner] = added(self._released[owner], fair_share.use.amounts(uid))

    def objection(self, of_cards: Amounts) -> str:
        """Return why the queue may not reclaim so much of cards, and what the pod requests of their node, in words."""
        more, entitlements = added(of_cards, self._of_node), self._entitlements
        with_more = Holding(added(self._own, more), self._weight)
        if not entitlements.is_owed(Holding(self._own, self._weight)) or entitlements.has_surplus(with_more):
            return _ENTITLED.format(queue=self.key.words)
        if not self._turnover.allows(str(self.key), Holding(more, self._weight), entitlements):
            return _TURNOVER.format(queue=self.key.words)
        return ""

    def may_have(self, charges: Iterable[Charge]) -> bool:
        """Whether the queue may reclaim these shares of cards."""
        return not self.objection(_of_cards(self._ledger, charges))

    def has_surplus(self, account: QueueKey | None) -> bool:
        """Whether another queue has more than its entitlement."""
        if account is None or account == self.key:
            return False
        return self._entitlements.has_surplus(self._holding(account))

    def allows(self, pod: Pod, account: QueueKey) -> bool:
        """Whether a running pod may be preempted, for which the queue `account` pays."""
        holder = Rank(self._fair_share.queues.spec(account).priority, pod.spec.priority)
        return (
            pod.uid not in self._going
            and reclaim.may_take(self._reclaim, taker=self._rank, holder=holder)
            and self.has_surplus(account)
        )

    def permits(self, account: QueueKey, gone: Iterable[str]) -> bool:
        """Whether a queue would not have less than its entitlement without some of its pods, given by UID."""
        return not self._entitlements.is_owed(self._holding(account, gone))

    def _holding(self, account: QueueKey, gone: Iterable[str] = ()) -> Holding:
        """Return what a queue will have without some of its pods, once those that end already are gone, too."""
        use = self._fair_share.use
        amounts = subtracted(use.of(account).amounts, self._released[account])
        for uid in gone:
            if uid not in self._going:
                amounts = subtracted(amounts, use.amounts(uid))
        return Holding(amounts, self._fair_share.queues.spec(account).weight)


def _of_cards(ledger: Ledger, charges: Iterable[Charge]) -> Amounts:
    use, charged = Use(), tuple(charges)
    use.add_charges(charged, 1, tflops=ledger.tflops(charged))
    return use.amounts


def _of_node(state: ClusterState, pod: Pod) -> Amounts:
    amounts = state.node_filter.equivalence_class(pod).amounts
    return 0, 0, 0, 0, amounts.get(resources.CPU, 0), amounts.get(resources.MEMORY, 0)
