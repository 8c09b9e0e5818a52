"""Which MIG instances must be created so that a pod fits that fits no node now.

Candidate instances are tried on a copy of their node, by the same placement that will place the pod once they exist.
"""

from collections.abc import Collection, Container, Mapping, Sequence

import msgspec
import numpy as np

from allocation.constraints import Constraints
from allocation.inventory import Card, NodeInventory
from allocation.ledger import ledger_copy
from allocation.ledger.ledger import Ledger
from allocation.ledger.ledger_view import LedgerView
from allocation.mig import MODE, MigInstance, MigProfile, Slices, suitable
from allocation.placement.fit import ConstraintMasks, verdicts
from allocation.placement.node_filter import best_first
from allocation.placement.node_values import NodeValues
from allocation.placement.placement import Placement, place
from allocation.placement.query import PlacementQuery
from allocation.placement.score import node_scores
from allocation.quota import UNLIMITED, Headroom
from allocation.reasons import CardReason
from allocation.request import ContainerRequest, PodRequest
from allocation.steps import Steps, finish


class NewInstance(msgspec.Struct, frozen=True):
    """An instance to create: the card, the profile and the slices."""

    card: str
    profile: str
    slices: Slices


class Plan(msgspec.Struct, frozen=True):
    """The node on which the pod will fit, and the instances to create there first."""

    node: str
    instances: tuple[NewInstance, ...]


def plan(
    ledger: Ledger,
    request: PodRequest,
    nodes: Sequence[str],
    *,
    constraints: Constraints,
    requested: Mapping[str, Sequence[Slices]],
    cooling_down: Collection[str] = (),
    headroom: Headroom = UNLIMITED,
    without: Container[str] = (),
) -> Steps[Plan | None]:
    """Return what to create for a pod, on the best of `nodes` where that is possible.

    None if it is on none, or if a node takes the pod as it is by now: then the pod is to be scheduled again.
    `requested` are, by card, the slices of instances requested for other pods. Cards in `cooling_down` get no instances
    now. The reservations `without`, given by UID, are taken to be gone.
    """
    if constraints.card_kind == "card" or (constraints.topology is not None and constraints.topology.is_required):
        return None  # instances are not linked to each other
    query = PlacementQuery(request, constraints, headroom)
    mig_nodes = ledger.mig_nodes
    names = [name for name in nodes if name in mig_nodes]
    rows = ledger.rows(names)
    scores = node_scores(ledger, request.gpu_containers)[rows]
    values = NodeValues(ledger, constraints).of_rows(rows, np.zeros(len(rows)), scores)
    for number in best_first(names, values).tolist():
        yield
        possible = _plan_on(
            ledger, query, names[number], requested=requested, cooling_down=cooling_down, without=without
        )
        if possible is not None:
            return possible if possible.instances else None
    return None


def _plan_on(
    ledger: Ledger,
    query: PlacementQuery,
    node: str,
    *,
    requested: Mapping[str, Sequence[Slices]],
    cooling_down: Collection[str],
    without: Container[str],
) -> Plan | None:
    """Add an instance for the container that does not fit, until the pod fits or no free slices are left.

    The plan is empty if the pod fits without.
    """
    inventory, request = ledger.inventory(node), query.request
    if inventory is None:
        return None
    cards = (card for card in inventory.cards if card.instances_by == "agent")
    parents = {card.uuid: card for card in cards if card.uuid not in cooling_down}
    added: list[Card] = []
    taken = _taken(inventory, added, parents=parents, requested=requested)
    if not any(
        _suitable(card, container, taken, query.constraints)
        for card in parents.values()
        for container in request.gpu_containers
    ):
        return None  # rules out most nodes of a full fleet without a trial
    for _ in range(sum(container.count for container in request.containers) + 1):
        trial = ledger_copy.of_node(ledger, node, without=without, added=added)
        outcome = finish(place(LedgerView(trial), query, [node]))
        if isinstance(outcome, Placement):
            used = {charge.uuid for charge in outcome.charges}
            return Plan(node, tuple(_new(card.instance) for card in added if card.instance and card.uuid in used))
        container = request.container(outcome.rejections[node].container)
        if container is None:
            return None
        taken = _taken(inventory, added, parents=parents, requested=requested)
        card = _next_instance(trial, query, node, container=container, parents=parents, taken=taken)
        if card is None:
            return None
        added.append(card)
    return None


def _next_instance(
    trial: Ledger,
    query: PlacementQuery,
    node: str,
    *,
    container: ContainerRequest,
    parents: Mapping[str, Card],
    taken: Mapping[str, Sequence[Slices]],
) -> Card | None:
    """Return the smallest instance that would suit a container, on a card that lacks nothing but an instance."""
    row, inventory = trial.row(node), trial.inventory(node)
    if row is None or inventory is None:
        return None
    judged = verdicts(ConstraintMasks(trial, query.constraints).cards(row), query.for_container(container))
    candidates = []
    for position in np.flatnonzero(judged == CardReason.CardMigTopologyInfeasible).tolist():
        card = inventory.cards[position]
        choice = _suitable(card, container, taken, query.constraints) if card.uuid in parents else None
        if choice is not None:
            profile, slices = choice
            candidates.append(((profile.memory_mib, profile.slice_count, card.index), card, profile, slices))
    if not candidates:
        return None
    _, card, profile, slices = min(candidates, key=lambda each: each[0])
    return Card(
        uuid=f"{card.uuid}/{slices.start}",
        index=card.index,
        memory_mib=profile.memory_mib,
        cores=profile.cores,
        slots=1,
        model=f"{card.model} MIG {profile.name}",
        numa=card.numa,
        mode=MODE,
        instance=MigInstance(card.uuid, profile.name, slices),
        tflops=card.tflops,
    )


def _suitable(
    card: Card, container: ContainerRequest, taken: Mapping[str, Sequence[Slices]], constraints: Constraints
) -> tuple[MigProfile, Slices] | None:
    return suitable(
        card.mig_profiles,
        memory_on=container.memory_on,
        cores=container.least_cores_on(card.tflops),
        taken=taken[card.uuid],
        only=constraints.profile,
    )


def _taken(
    inventory: NodeInventory,
    added: Sequence[Card],
    *,
    parents: Mapping[str, Card],
    requested: Mapping[str, Sequence[Slices]],
) -> dict[str, list[Slices]]:
    """Return the slices of each card that are not free: those of instances, and the requested ones."""
    taken = {uuid: [*requested.get(uuid, ())] for uuid in parents}
    for card in (*inventory.cards, *added):
        if card.instance is not None and card.instance.slices is not None and card.parent in taken:
            taken[card.parent].append(card.instance.slices)
    return taken


def _new(instance: MigInstance) -> NewInstance:
    return NewInstance(instance.parent, instance.profile, instance.slices or Slices(0, 0))
