"""The pods for which others are preempted, and for how long: each alone, or those of a gang together."""

from collections.abc import Callable, Iterator

import msgspec

from scheduler.gangs.gang import GangKey
from scheduler.holds import Hold
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState


class Nominee(msgspec.Struct, frozen=True, eq=False):
    """A pod for which others are preempted, or the pods of a gang.

    Attributes:
        first: the pod, or of a gang the one that stands for all that wait.
        pods: all pods that have holds.
        holds: what is held for each of them.
    """

    first: Pod
    pods: tuple[Pod, ...]
    holds: tuple[Hold, ...]

    @property
    def unit(self) -> GangKey | str:
        """The gang, or the UID of the pod."""
        return self.holds[0].unit

    @property
    def priority(self) -> int:
        """The lowest priority of its pods."""
        return min(pod.spec.priority for pod in self.pods)

    def is_late(self, now: float) -> bool:
        """Whether its deadline is over."""
        deadline = self.holds[0].deadline
        return deadline is not None and now >= deadline


class Nominees:
    """All of them, by gang or pod."""

    def __init__(self, state: ClusterState, *, most: int, still_waits: Callable[[Pod], bool]) -> None:
        """Begin without any; of one queue there are at most `most`, of which a gang is one."""
        self._state = state
        self._most = most
        self._still_waits = still_waits
        self._nominees: dict[GangKey | str, Nominee] = {}

    def __iter__(self) -> Iterator[Nominee]:
        """Iterate over them."""
        return iter(tuple(self._nominees.values()))

    def add(self, nominee: Nominee) -> None:
        """Add one."""
        self._nominees[nominee.unit] = nominee

    def remove(self, nominee: Nominee) -> None:
        """Remove one."""
        self._nominees.pop(nominee.unit, None)

    def may_join(self, pod: Pod) -> bool:
        """Whether a pod may become a nominee: its queue has fewer than the limit, or one that is less important.

        Victims may take as long as they like to end, so nominees of one queue must not keep others from preempting.
        """
        same = self._of_queue(pod)
        return len(same) < self._most or same[0].priority < pod.spec.priority

    def excess(self, pod: Pod) -> Nominee | None:
        """Return the least important nominee of the queue of a pod if there are too many now."""
        same = self._of_queue(pod)
        return same[0] if len(same) > self._most else None

    def _of_queue(self, pod: Pod) -> list[Nominee]:
        """Return the nominees of the queue of a pod, the least important first."""
        key = self._state.fair_share.key
        return sorted((each for each in self if key(each.first) == key(pod)), key=lambda each: each.priority)

    def are_needed(self, nominee: Nominee) -> bool:
        """Whether all of its pods still wait.

        The hold of a single pod is still the same then; those of a gang are missing for moments in which it is tried
        to schedule the gang.
        """
        if nominee.holds[0].gang is not None:
            return all(map(self._still_waits, nominee.pods))
        return self._state.holds.of(nominee.first.uid) is nominee.holds[0]

    def have_nodes(self, nominee: Nominee) -> bool:
        """Whether its pods have nodes, or are assumed there: those of a gang get them at the same time."""
        return any(self._state.node_cache.node_of(pod.uid) for pod in nominee.pods)

    def has_ended(self, nominee: Nominee) -> bool:
        """Whether what is held for it is of no use any more: one of its pods has no hold, or does not wait."""
        holds = self._state.holds
        return any(
            holds.of(pod.uid) is not hold or not self._still_waits(pod)
            for pod, hold in zip(nominee.pods, nominee.holds, strict=True)
        )
