"""In which blocks the pods of a gang are tried together, and in which order.

The pods with the most cards come first; if that fails, those with the most memory. Where all nodes must be in one
block, the one where cards are held for the gang comes first, and then those with the most free memory of cards.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from allocation.ledger.card_table import MEMORY
from allocation.quota import minimum_request
from allocation.steps import Steps
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.gangs.gang import Gang
from scheduler.gpu_requirements import GpuRequirements
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState

T = TypeVar("T")

_BLOCKS: Final = 16
"""The number of blocks that are tried."""
_STEP: Final = 256

_Size = tuple[int, int, str]
"""Cards and MiB of a pod, and its name."""


def blocks(state: ClusterState, gang: Gang) -> Steps[Sequence[str | None]]:
    """Return the blocks to try for a gang, the most promising first; None restricts nothing."""
    key = gang.block
    if not key or gang.by_node:
        return (None,)
    ledger, free = state.ledger, Counter[str]()
    for position, name in enumerate(tuple(ledger.nodes)):
        if position % _STEP == _STEP - 1:
            yield
        value, row = _block(state, name, key), ledger.row(name)
        if value is not None and row is not None:
            free[value] += ledger.facts(row).capacity[MEMORY] - ledger.used_sums(row)[MEMORY]
    held = (hold.node for uid in gang.waiting if (hold := state.holds.of(uid)) is not None)
    first = next((value for node in held if (value := _block(state, node, key)) is not None), None)
    return list(dict.fromkeys((*(() if first is None else (first,)), *_most(free)))) or [""]


def try_block(state: ClusterState, gang: Gang, block: str | None) -> None:
    """Restrict the pods of a gang to a block, or no more; other nodes take them now than before."""
    if gang.tried_block != block:
        gang.tried_block = block
        state.ledger.changes.add_other()


def orders(cycle: SchedulingCycle, items: Iterable[T], pod_of: Callable[[T], Pod]) -> Steps[Sequence[list[T]]]:
    """Return the orders in which pods are tried; one for pods that are alike."""
    sized: list[tuple[_Size, T]] = []
    for item in items:
        yield
        sized.append((_size(cycle, pod_of(item)), item))

    def by(key: Callable[[_Size], tuple[int, int, str]]) -> list[T]:
        return [item for _, item in sorted(sized, key=lambda each: key(each[0]))]

    first = by(lambda size: (-size[0], -size[1], size[2]))
    yield
    second = by(lambda size: (-size[1], -size[0], size[2]))
    yield
    return [first] if first == second else [first, second]


def _most(free: Counter[str]) -> list[str]:
    return [value for value, _ in free.most_common(_BLOCKS)]


def _block(state: ClusterState, name: str, key: str) -> str | None:
    node = state.node_cache.nodes.get(name)
    return node.metadata.labels.get(key) if node is not None else None


def _size(cycle: SchedulingCycle, pod: Pod) -> _Size:
    requirements = cycle.requirements(pod)
    if not isinstance(requirements, GpuRequirements) or not requirements.request:
        return 0, 0, pod.metadata.name
    least = minimum_request(requirements.request)
    return least.cards, least.memory_mib, pod.metadata.name
