"""One scheduling cycle for a gang: from its pods to nodes that are reserved for as many as necessary, or for none.

The pods are scheduled one after the other in the state itself, so that each sees those before it: their cards, CPU and
ports, the rules about other pods, quotas and volumes. On copies all these would have to be decided twice. No other
decision is made meanwhile (`ClusterState.turn`). If one pod too many has no place, all are forgotten, and what was held
for pods before is held again: nothing is reserved while a gang waits.

That is exact for equal pods without rules about other pods, and a heuristic otherwise: the pods with the most cards
come first; if that fails, those with the most memory. Where all nodes must be in one block, the blocks with the most
free memory of cards are tried.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from allocation.ledger.card_table import MEMORY
from allocation.quota import minimum_request
from allocation.steps import Exclusive, Steps, finish
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.gangs.gang import Gang
from scheduler.gpu_requirements import GpuRequirements
from scheduler.objects import Pod

_BLOCKS: Final = 16
"""The number of blocks that are tried: those with the most free memory of cards."""
_STEP: Final = 256
_FORGOTTEN: Final = 64
"""The pods that are forgotten in one step."""

_Size = tuple[int, int, str]
"""Cards and MiB of a pod, and its name."""


class HasPod(Protocol):
    """A pod that waits for a node: an entry of the queue, or one of kube-scheduler's."""

    @property
    def pod(self) -> Pod:
        """Its state now."""


E = TypeVar("E", bound=HasPod)


class ScheduledGang(msgspec.Struct, Generic[E], frozen=True):
    """Nodes are reserved for as many pods of a gang as necessary.

    Attributes:
        gang: the gang.
        members: the pods with their nodes.
        needed: how many of these have to be bound for the gang to run.
        rejected: the other pods, which no node takes, and why.
    """

    gang: Gang
    members: tuple[tuple[E, Scheduled], ...]
    needed: int
    rejected: tuple[tuple[E, Unschedulable], ...] = ()


class RejectedGang(msgspec.Struct, frozen=True):
    """Too few pods of a gang have places.

    Attributes:
        fitting: how many had one.
        pod: the first that had none.
        result: why no node takes it.
    """

    fitting: int
    pod: Pod
    result: Unschedulable


class GangCycle:
    """Schedules one gang at a time."""

    def __init__(self, cycle: SchedulingCycle) -> None:
        """Schedule the pods by `cycle`."""
        self._cycle = cycle
        self._state = cycle.state

    def schedule(
        self, gang: Gang, entries: Sequence[E], *, explain: bool = True, is_rehearsal: bool = False
    ) -> Steps[ScheduledGang[E] | RejectedGang | None]:
        """Choose nodes for the pods of `entries`, and reserve as many as `gang` needs, or nothing.

        Return None if one of the pods changed meanwhile, or the cluster changed too often. Without `explain` the result
        may lack the reasons why no node takes a pod. After a rehearsal nothing is reserved, whatever its result is.
        """
        best: RejectedGang | None = None
        blocks, orders = (yield from self._blocks(gang)), (yield from self._orders(entries))
        try:
            for block in blocks:
                self._try_block(gang, block)
                for order in orders:
                    found = yield from self._in_order(gang, order, explain=explain, is_rehearsal=is_rehearsal)
                    if not isinstance(found, RejectedGang):
                        return found
                    if best is None or found.fitting > best.fitting:
                        best = found
        finally:
            self._try_block(gang, None)
        return best

    # ---- the ways to try it ----------------------------------------------------------------------------------------

    def _blocks(self, gang: Gang) -> Steps[Sequence[str | None]]:
        """Return the blocks to try, those with the most free memory of cards first; None restricts nothing."""
        key = gang.block
        if not key or gang.nodes:
            return (None,)
        ledger, free = self._state.ledger, Counter[str]()
        for position, name in enumerate(tuple(ledger.nodes)):
            if position % _STEP == _STEP - 1:
                yield
            node, row = self._state.node_cache.nodes.get(name), ledger.row(name)
            value = node.metadata.labels.get(key) if node is not None else None
            if value is not None and row is not None:
                free[value] += sum(ledger.facts(row).memory_mib) - ledger.used_sums(row)[MEMORY]
        return [value for value, _ in free.most_common(_BLOCKS)] or [""]

    def _try_block(self, gang: Gang, block: str | None) -> None:
        """Restrict the pods of a gang to a block, or no more; other nodes take them now than before."""
        if gang.tried_block != block:
            gang.tried_block = block
            self._state.ledger.changes.add_other()

    def _orders(self, entries: Sequence[E]) -> Steps[Sequence[list[E]]]:
        """Return the orders in which the pods are tried; one for pods that are alike."""
        sizes: dict[str, _Size] = {}
        for entry in entries:
            yield
            sizes[entry.pod.uid] = self._size(entry.pod)

        def by(key: Callable[[_Size], tuple[int, int, str]]) -> list[E]:
            return sorted(entries, key=lambda entry: key(sizes[entry.pod.uid]))

        first = by(lambda size: (-size[0], -size[1], size[2]))
        yield
        second = by(lambda size: (-size[1], -size[0], size[2]))
        yield
        return [first] if first == second else [first, second]

    def _size(self, pod: Pod) -> _Size:
        requirements = self._cycle.requirements(pod)
        if not isinstance(requirements, GpuRequirements) or not requirements.request:
            return 0, 0, pod.metadata.name
        least = minimum_request(requirements.request)
        return least.cards, least.memory_mib, pod.metadata.name

    def _in_order(
        self, gang: Gang, entries: Sequence[E], *, explain: bool, is_rehearsal: bool
    ) -> Steps[ScheduledGang[E] | RejectedGang | None]:
        state, needed = self._state, gang.size - gang.placed
        holds = state.holds.pairs()
        members: list[tuple[E, Scheduled]] = []
        rejected: list[tuple[E, Unschedulable]] = []
        is_kept = False
        try:
            for entry in entries:
                yield
                result = yield from self._cycle.schedule(entry.pod, explain=explain and not rejected)
                if result is None:
                    return None
                if isinstance(result, Scheduled):
                    members.append((entry, result))
                    continue
                rejected.append((entry, result))
                if len(entries) - len(rejected) < needed:
                    fitting = len(members)
                    yield from self._forget(members)
                    return RejectedGang(fitting, entry.pod, result)
            with Exclusive("reserving for a gang"):
                if not all(state.node_cache.is_assumed(entry.pod.uid) for entry, _ in members):
                    return None  # one of them is gone
                is_kept = not is_rehearsal
                return ScheduledGang(gang, tuple(members), needed, tuple(rejected))
        finally:
            if not is_kept:
                finish(self._forget(members))
                for hold, pod in holds:
                    # Of kube-scheduler's pods nothing here says which still wait; preemption ends their holds.
                    waits = not state.has_queue or state.queue.pod(hold.uid) is not None
                    if waits and state.holds.of(hold.uid) is None:
                        state.holds.add(hold, pod)

    def _forget(self, members: list[tuple[E, Scheduled]]) -> Steps[None]:
        """Forget pods, the last one first, and remove them from the list."""
        while members:
            entry, _ = members.pop()
            self._cycle.forget(entry.pod)
            if len(members) % _FORGOTTEN == 0:
                yield
