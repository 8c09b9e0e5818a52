"""Which MIG instances must be made so that a pod fits that fits nowhere now.

The further instances are tried in a ledger of one node, by the same placement that will place the pod once they are
there.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np

from allocation.constraints import Constraints
from allocation.fit import Demand, verdicts
from allocation.inventory import Card, NodeInventory
from allocation.ledger import Ledger
from allocation.mig import MODE, MigInstance, MigProfile, Slices, suitable
from allocation.placement import Placement, place
from allocation.quota import UNLIMITED, Room
from allocation.reasons import CardReason
from allocation.request import ContainerRequest, PodRequest
from allocation.survey import ranked


class NewInstance(msgspec.Struct, frozen=True):
    """An instance to make: on which card, of which profile, where."""

    card: str
    profile: str
    slices: Slices


class Plan(msgspec.Struct, frozen=True):
    """The node on which the pod will fit, and the instances that it lacks there."""

    node: str
    instances: tuple[NewInstance, ...]


def plan(
    ledger: Ledger,
    request: PodRequest,
    nodes: Sequence[str],
    *,
    constraints: Constraints,
    promised: Mapping[str, Sequence[Slices]],
    barred: Collection[str] = (),
    room: Room = UNLIMITED,
) -> Plan | None:
    """Answer what to make for a pod, on the best of `nodes` that can make it; None where none can.

    `promised` is by card what is to be made for others; `barred` are cards on which nothing shall be tried now.
    """
    divided = ledger.divided
    rows = ledger.rows([name for name in nodes if name in divided])
    best, _ = ranked(ledger, request, rows, constraints=constraints)
    for name in ledger.names(best):
        found = _on(ledger, request, name, constraints=constraints, promised=promised, barred=barred, room=room)
        if found is not None:
            return found
    return None


def _on(
    ledger: Ledger,
    request: PodRequest,
    node: str,
    *,
    constraints: Constraints,
    promised: Mapping[str, Sequence[Slices]],
    barred: Collection[str],
    room: Room,
) -> Plan | None:
    """Add one instance after the other for the container that lacks one, until the pod fits or no place is left."""
    inventory = ledger.inventory(node)
    if inventory is None:
        return None
    makers = {card.uuid: card for card in inventory.cards if card.instances_by == "agent" and card.uuid not in barred}
    added: list[Card] = []
    taken = _taken(inventory, added, makers=makers, promised=promised)
    if not any(_choice(card, container, taken) for card in makers.values() for container in request.gpu_containers):
        return None  # most nodes of a full fleet, told without trying
    for _ in range(sum(container.count for container in request.containers) + 1):
        trial = _trial(ledger, inventory, added)
        outcome = place(trial, request, [node], constraints=constraints, room=room)
        if isinstance(outcome, Placement):
            used = {charge.uuid for charge in outcome.charges}
            return Plan(node, tuple(_new(card.instance) for card in added if card.instance and card.uuid in used))
        container = request.container(outcome.rejections[node].container)
        if container is None:
            return None
        taken = _taken(inventory, added, makers=makers, promised=promised)
        card = _further(trial, container, node, makers=makers, taken=taken, constraints=constraints, room=room)
        if card is None:
            return None
        added.append(card)
    return None


def _trial(ledger: Ledger, inventory: NodeInventory, added: Sequence[Card]) -> Ledger:
    """Answer a ledger of one node as it would be with further instances."""
    trial = Ledger(rows=1, cards=len(inventory.cards) + len(added))
    trial.set_node(msgspec.structs.replace(inventory, cards=(*inventory.cards, *added)))
    trial.set_cordon(inventory.node, ledger.cordon(inventory.node))
    for holding in ledger.holdings(inventory.node):
        trial.record(holding.uid, holding.node, holding.charges)
    return trial


def _further(
    trial: Ledger,
    container: ContainerRequest,
    node: str,
    *,
    makers: Mapping[str, Card],
    taken: Mapping[str, Sequence[Slices]],
    constraints: Constraints,
    room: Room,
) -> Card | None:
    """Answer the smallest further instance that suits a container, on a card that fails no other test than this one."""
    row, inventory = trial.row(node), trial.inventory(node)
    if row is None or inventory is None:
        return None
    mutex = "mutex" in constraints.card_policies
    judged = verdicts(Demand(trial, constraints).cards(row), container, mutex=mutex, room=room)
    found = []
    for position in np.flatnonzero(judged == CardReason.CardMigTopologyInfeasible).tolist():
        card = inventory.cards[position]
        choice = _choice(card, container, taken) if card.uuid in makers else None
        if choice is not None:
            profile, slices = choice
            found.append(((profile.memory_mib, profile.slice_count, card.index), card, profile, slices))
    if not found:
        return None
    _, card, profile, slices = min(found, key=lambda each: each[0])
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
    )


def _choice(
    card: Card, container: ContainerRequest, taken: Mapping[str, Sequence[Slices]]
) -> tuple[MigProfile, Slices] | None:
    return suitable(card.mig_profiles, memory_on=container.memory_on, cores=container.cores, taken=taken[card.uuid])


def _taken(
    inventory: NodeInventory,
    added: Sequence[Card],
    *,
    makers: Mapping[str, Card],
    promised: Mapping[str, Sequence[Slices]],
) -> dict[str, list[Slices]]:
    """Answer the places that are not free, by card: those of instances, and those that are promised."""
    found = {uuid: [*promised.get(uuid, ())] for uuid in makers}
    for card in (*inventory.cards, *added):
        if card.instance is not None and card.instance.slices is not None and card.parent in found:
            found[card.parent].append(card.instance.slices)
    return found


def _new(instance: MigInstance) -> NewInstance:
    return NewInstance(instance.parent, instance.profile, instance.slices or Slices(0, 0))
