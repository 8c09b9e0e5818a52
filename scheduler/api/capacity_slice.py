"""Finds the largest slice of one card that a pod could get now, by the function that evaluates a node for a pod."""

import heapq
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from allocation.ledger.card_table import CORES, MEMORY, SLOTS
from allocation.quota import Headroom
from allocation.request import MILLI_PER_PERCENT, ContainerRequest, Kind, PodRequest
from allocation.steps import Steps
from scheduler.api.capacity_types import LargestSlice
from scheduler.cycle import evaluation
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.evaluation import Evaluation
from scheduler.cycle.result import Unschedulable
from scheduler.gpu_requirements import GpuRequirements, WaitingPodError
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState

_MOST_NODES: Final = 64
"""The most nodes that are searched, those with the most free memory on one card first. The first one that takes the pod
has the result, unless something else than the amounts keeps the pod from its emptiest card."""

_NO_LIMITS: Final = (None, None, None, None)
"""A slice states its memory and its compute, so it satisfies limits that require that."""
_NODES: Final = 200
"""Nodes that are read in one step."""


def largest(cycle: SchedulingCycle, pod: Pod) -> Steps[LargestSlice | None]:
    """Return the slice with the most memory, and with it the most compute, that a pod like `pod` could get.

    The pod keeps everything but its GPU resources: its node selectors, its constraints on cards, its CPU and memory.
    Return None if no slice fits, or the amounts alone do not decide which cards the pod gets.
    """
    state, requirements = cycle.state, cycle.requirements(pod)
    if isinstance(requirements, Unschedulable) or not _is_free(requirements):
        return None
    headroom = state.requirements.headroom(pod)
    filtered = yield from state.node_filter.filter(pod, state.rejected_nodes.candidates(requirements))
    best: LargestSlice | None = None
    bounds = yield from _bounds(state, filtered.fitting)
    for memory_mib, cores, node in heapq.nsmallest(_MOST_NODES, bounds, key=_emptiest):
        if best is not None and (memory_mib, cores // MILLI_PER_PERCENT) <= (best.memory_mib, best.cores):
            break
        yield
        evaluated = partial(_evaluated, state, pod, requirements, node, headroom)
        found = _on_node(evaluated, memory_mib, cores)
        if found is not None and (best is None or found > (best.memory_mib, best.cores)):
            best = LargestSlice(*found, _model(state, evaluated(*found)), node)
    return best


def _on_node(evaluated: Callable[[int, int], Evaluation], memory_mib: int, cores: int) -> tuple[int, int] | None:
    """Return the MiB and percent of the largest slice of a node; None if none fits.

    `evaluated` returns the evaluation of the node for a slice of some MiB and percent. No card has more free than these
    MiB and millicards.
    """
    # A quota may allow no compute, or no slice that does not say how much.
    memory = _greatest(lambda amount: bool(evaluated(amount, 0).scores), memory_mib)
    memory = memory or _greatest(lambda amount: bool(evaluated(amount, 1).scores), memory_mib)
    if not memory:
        return None
    percent = _greatest(lambda amount: bool(evaluated(memory, amount).scores), cores // MILLI_PER_PERCENT)
    return memory, percent


def _evaluated(  # noqa: PLR0917 -- the last two are those of a search
    state: ClusterState,
    pod: Pod,
    requirements: GpuRequirements,
    node: str,
    headroom: Headroom,
    memory_mib: int,
    percent: int,
) -> Evaluation:
    """Return the evaluation of a node for a pod that requests a slice of one card instead.

    No node takes it if a GpuQuota allows a single pod less.
    """
    name = requirements.request.gpu_containers[0].name
    cores = percent * MILLI_PER_PERCENT
    container = ContainerRequest(name, Kind.REGULAR, "", count=1, memory_mib=memory_mib, cores=cores)
    slice_ = PodRequest((container,), requirements.request.isolation)
    asked, namespace = msgspec.structs.replace(requirements, request=slice_), pod.metadata.namespace
    try:
        state.quotas.check_single(slice_, namespace, _NO_LIMITS, card_mib=lambda: 0, is_instance=False)
    except WaitingPodError:
        return Evaluation(asked, {}, {})
    return evaluation.evaluate_node(state, asked, node, headroom)


def _emptiest(bound: tuple[int, int, str]) -> tuple[int, int, str]:
    """Return the key by which the emptiest cards come first."""
    memory_mib, cores, node = bound
    return -memory_mib, -cores, node


def _is_free(requirements: GpuRequirements) -> bool:
    """Whether only amounts and constraints decide which cards the pod gets."""
    chosen = requirements.fixed is not None or requirements.bound is not None or requirements.claim is not None
    return bool(requirements.request) and not chosen


def _bounds(state: ClusterState, nodes: Sequence[str]) -> Steps[list[tuple[int, int, str]]]:
    """Return for each node with a usable card the most free MiB and the most free millicards of any, and the node.

    A card without compute left takes no pod, not even one that requests none.
    """
    ledger, bounds = state.ledger, list[tuple[int, int, str]]()
    for number, name in enumerate(nodes, start=1):
        if number % _NODES == 0:
            yield
        row = ledger.row(name)
        if row is None or ledger.is_full(row):
            continue
        cards = (ledger.free(row, card) for card, usable in enumerate(ledger.facts(row).usable) if usable)
        free = [each for each in cards if min(each[MEMORY], each[CORES], each[SLOTS]) > 0]
        if free:
            bounds.append((max(each[MEMORY] for each in free), max(each[CORES] for each in free), name))
    return bounds


def _greatest(fits: Callable[[int], bool], most: int) -> int:
    """Return the greatest amount up to `most` that fits, 0 if none does; what fits, fits in every smaller amount."""
    if most <= 0 or fits(most):
        return max(most, 0)
    least = 0
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if fits(middle) else (least, middle)
    return least


def _model(state: ClusterState, evaluated: Evaluation) -> str:
    """Return the model of the card that was chosen."""
    placed = evaluated.allocation
    inventory = state.ledger.inventory(placed.node) if placed is not None else None
    if placed is None or inventory is None:
        return ""
    uuids = {share.uuid for shares in placed.containers.values() for share in shares}
    return next((card.model for card in inventory.cards if card.uuid in uuids), "")
