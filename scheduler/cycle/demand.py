"""What a pod requests that waits for other pods to go: the demand by which lower tiers wait, and cards are held."""

from itertools import islice
from typing import Final

from allocation.fairness.shares import Amounts
from allocation.quota import UNLIMITED, minimum_request
from allocation.reasons import CardReason
from allocation.steps import Steps
from scheduler.cycle import evaluation
from scheduler.cycle.evaluation import Evaluation
from scheduler.filters import resources
from scheduler.gpu_requirements import GpuRequirements
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState

_TRIED: Final = 64
"""The most nodes, full in another respect than their cards, that are searched for one with enough cards."""


def demand_of(state: ClusterState, pod: Pod, evaluated: Evaluation) -> Steps[Amounts | None]:
    """Return what a pod requests that no node takes; None unless it would fit as soon as other pods are gone.

    A pod that waits for its own quota does not wait for other pods.
    """
    if not evaluated.requirements.request or not (yield from _would_fit(state, evaluated)):
        return None
    return amounts(state, pod, evaluated.requirements)


def amounts(state: ClusterState, pod: Pod, requirements: GpuRequirements) -> Amounts:
    """Return what a pod requests of cards and of its node, as it counts for shares."""
    cards, node = minimum_request(requirements.request), state.node_filter.equivalence_class(pod).amounts
    return (
        cards.memory_mib,
        cards.cores,
        cards.cards,
        cards.tflops,
        node.get(resources.CPU, 0),
        node.get(resources.MEMORY, 0),
    )


def _would_fit(state: ClusterState, evaluated: Evaluation) -> Steps[bool]:
    """Whether there is a node that would take the pod if other pods were gone."""
    rejections = evaluated.rejections.values()
    if any(CardReason.ResourceQuotaNotFit in each.counts for each in rejections):
        return False
    if any(each.resolvable for each in rejections):
        return True
    full = [name for name, each in evaluated.nodes.rejections.items() if each.resolvable]
    for name in islice(full, _TRIED):
        yield
        if _has_cards(state, evaluated, name):
            return True
    return False


def _has_cards(state: ClusterState, evaluated: Evaluation, node: str) -> bool:
    """Whether the cards of a node take the pod, or would if other pods were gone."""
    cards = evaluation.evaluate_node(state, evaluated.requirements, node, UNLIMITED, lift=evaluated.lift)
    return bool(cards.scores) or cards.rejections[node].resolvable
