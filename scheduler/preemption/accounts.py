"""What the quotas of a pod's namespace and queue leave to it once other pods are gone."""

from collections.abc import Iterable, Sequence
from typing import Final

from allocation.fairness.queue_spec import QueueKey
from allocation.quota import UNLIMITED, Headroom
from scheduler.fairness.use import Use
from scheduler.objects import Pod
from scheduler.preemption.eligibility import EligiblePod
from scheduler.state.cluster_state import ClusterState

_NOTHING: Final = (0,) * 8


class Accounts:
    """The accounts of one pod that waits: its namespace and its queue. Only their own pods can make room in them."""

    def __init__(self, state: ClusterState, pod: Pod) -> None:
        """Read the quotas in `state`."""
        self._state = state
        self._namespace = pod.metadata.namespace
        self._key = state.fair_share.key(pod)
        self._known: dict[str, Sequence[int]] = {}

    def is_own(self, pod: Pod, account: QueueKey) -> bool:
        """Whether a running pod for which the queue `account` pays is charged to the same namespace or queue."""
        return pod.metadata.namespace == self._namespace or account == self._key

    @property
    def are_limited(self) -> bool:
        """Whether a quota limits what they hold, or how many pods they have."""
        return self.headroom() != UNLIMITED

    def headroom(self, gone: Iterable[EligiblePod] = ()) -> Headroom | None:
        """Return what the quotas leave without the pods `gone`; None if there would still be too many pods."""
        state = self._state
        pods_left = state.quotas.pods_left(self._namespace), state.fair_share.pods_left(self._key)
        left_now = state.quotas.headroom(self._namespace), state.fair_share.headroom(self._key)
        if pods_left == (None, None) and not any(each.is_limited for each in left_now):
            return UNLIMITED
        given_back = [sum(amounts) for amounts in zip(*map(self._given_back, gone), strict=True)] or _NOTHING
        if any(left is not None and left + less < 1 for left, less in zip(pods_left, given_back[::4], strict=True)):
            return None
        return _with(left_now[0], *given_back[1:4]).within(_with(left_now[1], *given_back[5:]))

    def _given_back(self, each: EligiblePod) -> Sequence[int]:
        """Return pods, MiB, cores and cards that a pod gives back to the namespace, and the same for the queue."""
        uid = each.pod.uid
        if uid not in self._known:
            reservation, use = self._state.ledger.reservation(uid), Use(pods=1)
            for charge in reservation.charges if reservation is not None else ():
                use.add(charge, 1)
            amounts = use.pods, use.memory_mib, use.cores, use.cards
            is_own = each.pod.metadata.namespace == self._namespace, each.account == self._key
            self._known[uid] = [amount * own for own in is_own for amount in amounts]
        return self._known[uid]


def _with(headroom: Headroom, memory_mib: int, cores: int, cards: int) -> Headroom:
    """Return the headroom with what is given back."""
    return headroom.less(memory_mib=-memory_mib, cores=-cores, cards=-cards)
