"""Explains the rules by which the node of a pod and its cards are chosen."""

from typing import Final

from allocation.constraints import Constraints
from allocation.node_isolation import UNDIVIDED
from scheduler.api.explanation_types import Policy
from scheduler.gpu_requirements import GpuRequirements

_NODE_POLICIES: Final = {
    "binpack": "binpack: the highest score first; ties are broken by name",
    "spread": "spread: the lowest score first; ties are broken by name",
}
_STRANDED: Final = "the fewest cards left without CPU or memory"
_CARD_POLICIES: Final = {
    "binpack": "the highest score first",
    "spread": "the lowest score first",
    "numa": "by NUMA node",
    "mutex": "idle cards only",
    "topology-aware": "the cards with the best links to each other",
}
_SETS: Final = "the one that leaves the fewest cards of its islands free"
_TIES: Final = "ties go to the lowest score, then the most free memory, then the lowest index"
_ALL_BOUND: Final = "policy all: the first by name whose cards bound to the application are all left"


def policy(requirements: GpuRequirements, *, has_preferences: bool, counts_stranded: bool) -> Policy:
    """Return the rules as texts; with preferences, their scores decide together with those of the cards.

    `counts_stranded` is whether the cards count that a pod strands.
    """
    of_cards = _policy_of_cards(requirements, counts_stranded=counts_stranded)
    if not has_preferences:
        return of_cards
    nodes = f"the highest total of cards and preferences by scheduler.weights; for the cards, {of_cards.nodes}"
    return Policy(nodes, of_cards.cards)


def _policy_of_cards(requirements: GpuRequirements, *, counts_stranded: bool) -> Policy:
    if requirements.fixed is not None:
        return Policy(f"its static allocation names {requirements.fixed.node}", "its static allocation names them")
    if not requirements.request:
        first = f"{_STRANDED}, then the least free CPU" if counts_stranded else "the node with the fewest pods"
        return Policy(f"it asks for no GPU: {first}; ties are broken by name", "")
    constraints, bound = requirements.constraints, requirements.bound
    if bound is None:
        return Policy(_node_policy(requirements, counts_stranded=counts_stranded), _card_policy(constraints))
    if bound.policy == "all":
        return Policy(_ALL_BOUND, "policy all: every card of the node that is bound to the application")
    return Policy(_NODE_POLICIES[constraints.node_policy], _card_policy(constraints))


def _node_policy(requirements: GpuRequirements, *, counts_stranded: bool) -> str:
    constraints = requirements.constraints
    rules = [_NODE_POLICIES[constraints.node_policy]]
    if counts_stranded:
        rules.insert(0, _STRANDED)
    if constraints.fabric is not None:
        rules.insert(0, "the preferred network adapters and storage")
    has_sets = any(container.count > 1 for container in requirements.request.gpu_containers)
    if constraints.topology is not None and constraints.topology.ranks_nodes and has_sets:
        rules.insert(0, "the bandwidth of the best free set of cards")
    isolation = constraints.isolation
    demanded = f"; only nodes that can enforce its limits by {isolation}" if isolation in UNDIVIDED else ""
    return ", then ".join(rules) + demanded


def _card_policy(constraints: Constraints) -> str:
    rules = [f"{policy}: {_CARD_POLICIES[policy]}" for policy in constraints.card_policies]
    if constraints.numa_bind:
        rules.append("all on one NUMA node")
    topology = constraints.topology
    if topology is not None and topology.policy != "linked":
        rules.insert(
            0, f"the best free set by policy {topology.policy} in mode {topology.mode}; of equal sets, {_SETS}"
        )
    return "; ".join((*rules, _TIES))
