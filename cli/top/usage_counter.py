"""The usage of each card, counted as the scheduler counts: inventory plus the allocations of running pods."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from allocation.allocation import Allocation, Charge
from allocation.constraints import words
from allocation.errors import AllocationError
from allocation.inventory import NodeInventory
from allocation.names import CORDON, HAMI_REGISTER, HAMI_SCORES
from allocation.reasons import NodeRejection
from allocation.settings import AllocationSettings
from cli.kube.objects import NodeMetadata, Pod
from cli.liveness.agents import AgentCheck, Agents
from cli.top.double_booking import claims_by_card
from cli.top.fleet_cards import FleetCards, use_of
from cli.top.usage import CORDONED, DOUBLE_BOOKED, Amount, CardUsage, Condition, FleetUsage, NodeUsage, Share
from cluster.dra import ResourceClaim, ResourceSlice
from cluster.gpu_node_status import UNHEALTHY, GpuNodeStatus
from cluster.lease import Lease
from scheduler.dra.allocator_rejections import rejection_by
from scheduler.state.deliveries import Deliveries
from scheduler.state.inventories import Inventories
from scheduler.state.node_problems import NodeProblems
from scheduler.state.running_allocation import running_allocation, uncounted_message


class FleetObjects(msgspec.Struct, frozen=True):
    """The objects that `top` reads from the API server.

    Attributes:
        nodes: None if reading them is forbidden.
        leases: None if reading them is forbidden.
        now: Unix time by the API server's clock.
        slices: those of all DRA drivers; None if they were not read.
        claims: None if they were not read.
    """

    statuses: Iterable[GpuNodeStatus]
    pods: Iterable[Pod]
    nodes: Iterable[NodeMetadata] | None
    leases: Iterable[Lease] | None
    now: float
    slices: Iterable[ResourceSlice] | None = None
    claims: Iterable[ResourceClaim] | None = None


class _Counted(msgspec.Struct):
    """The charges by node, the shares by node and card, and by node the message about a pod that cannot be counted."""

    charges: defaultdict[str, list[Charge]]
    shares: defaultdict[str, defaultdict[str, list[Share]]]
    uncounted: dict[str, str]


def count(objects: FleetObjects, settings: AllocationSettings) -> FleetUsage:
    """Return the usage of every card that an agent or a register annotation reports."""
    fleet = FleetCards()
    inventories, deliveries, problems = Inventories(fleet, models=settings.models), Deliveries(), NodeProblems()
    reported, messages, cordons = set(), {}, {}
    not_ours: dict[str, NodeRejection] = {}
    for status in sorted(objects.statuses, key=lambda status: status.metadata.name):
        reported.add(status.metadata.name)
        if status.status is not None:
            messages.update({device.uuid: device.message for device in status.status.devices})
            if rejection := rejection_by(status.status.allocator or "ledger"):
                not_ours[status.metadata.name] = rejection
        inventories.report(status.metadata.name, status.inventory() if status.status is not None else None)
        deliveries.set_status(status)
        problems.set_status(status)
    for node in sorted(objects.nodes or (), key=lambda node: node.metadata.name):
        annotations = node.metadata.annotations
        cordons[node.metadata.name] = frozenset(words(annotations.get(CORDON, "")))
        inventories.register(node.metadata.name, annotations.get(HAMI_REGISTER), annotations.get(HAMI_SCORES, ""))
    agents = Agents(objects.leases, now=objects.now)
    counted = _record(objects.pods, settings)
    claims = claims_by_card(objects.slices or (), objects.claims or ())
    rejections = inventories.rejections
    usages = []
    for name in sorted({*fleet.nodes, *reported, *rejections}):
        agent, inventory = agents.of(name) if name in reported else AgentCheck("None"), fleet.inventory(name)
        cordoned = cordons.get(name, frozenset[str]())
        cards = tuple(_cards(inventory, counted, cordoned, messages, claims)) if inventory is not None else ()
        closing = [each[name] for each in (rejections, deliveries.rejections, not_ours) if name in each]
        problem = problems.rejections.get(name)
        conditions = tuple(_conditions(closing, agent, problem, counted.uncounted.get(name, ""), cards))
        lost = tuple(_lost(cards, counted.shares[name]))
        usages.append(NodeUsage(name, agent.state, agent.since, conditions, cards, lost))
    return FleetUsage(tuple(usages))


def _record(pods: Iterable[Pod], settings: AllocationSettings) -> _Counted:
    """Record the allocation of each running pod; a pod that cannot be counted closes its node."""
    counted = _Counted(defaultdict(list), defaultdict(lambda: defaultdict(list)), {})
    for pod in sorted(pods, key=str):
        node = pod.spec.node_name
        try:
            held = running_allocation(pod, settings)
        except AllocationError as error:
            counted.uncounted.setdefault(node, f"node {node} takes no GPU pods: {uncounted_message(pod, error)}")
            continue
        if held is not None:
            allocation, charges = held
            counted.charges[node] += charges
            for uuid, share in _shares(pod, allocation, charges):
                counted.shares[node][uuid].append(share)
    return counted


def _shares(pod: Pod, allocation: Allocation, charges: Iterable[Charge]) -> Iterator[tuple[str, Share]]:
    claim = allocation.claim.name if allocation.claim is not None else ""
    whole = {charge.uuid for charge in charges if charge.whole}
    for container, shares in allocation.containers.items():
        for share in shares:
            yield (
                share.uuid,
                Share(
                    namespace=pod.metadata.namespace,
                    pod=pod.metadata.name,
                    container=container,
                    memory_mib=share.memory_mib,
                    cores=share.cores,
                    claim=claim,
                    whole=share.uuid in whole,
                    memory_limit_mib=share.memory_limit_mib,
                    cores_limit=share.cores_limit,
                ),
            )


def _conditions(
    rejections: Iterable[NodeRejection],
    agent: AgentCheck,
    problem: NodeRejection | None,
    uncounted: str,
    cards: tuple[CardUsage, ...],
) -> Iterator[Condition]:
    for rejection in rejections:
        yield Condition(rejection.code.value, rejection.text)
    if agent.state == "Silent":
        yield Condition("AgentSilent", agent.message)
    if problem is not None:
        yield Condition(problem.code.value, problem.text)
    if uncounted:
        yield Condition("UncountedPod", uncounted)
    for card in cards:
        for claim in card.double_booked_by:
            message = f"ResourceClaim {claim} of another DRA driver has card {card.uuid}, which pods have, too"
            yield Condition(DOUBLE_BOOKED, f"{message}; delete the pods of one of the two", 1)
    for condition, affected in (
        (UNHEALTHY, [card for card in cards if not card.healthy]),
        (CORDONED, [card for card in cards if card.cordoned]),
    ):
        if affected:
            named = ", ".join(f"card {card.uuid}{f' ({card.message})' if card.message else ''}" for card in affected)
            yield Condition(condition, named, len(affected))


def _lost(cards: Iterable[CardUsage], shares: Mapping[str, Sequence[Share]]) -> Iterator[Share]:
    """Yield the shares of cards that are not among those of the node."""
    for uuid in sorted(shares.keys() - {card.uuid for card in cards}):
        yield from shares[uuid]


def _cards(
    inventory: NodeInventory,
    counted: _Counted,
    cordoned: frozenset[str],
    messages: dict[str, str],
    claims: Mapping[str, tuple[str, ...]],
) -> Iterator[CardUsage]:
    use = use_of(inventory, counted.charges[inventory.node])
    charges = counted.charges[inventory.node]
    held = {uuid for charge in charges for uuid in (charge.uuid, charge.parent)}
    for card in inventory.cards:
        memory, cores, slots = use[card.uuid]
        yield CardUsage(
            index=card.index,
            uuid=card.uuid,
            model=card.model,
            mode=card.mode,
            healthy=card.healthy,
            message="" if card.healthy else messages.get(card.uuid, ""),
            cordoned=card.uuid in cordoned or card.parent in cordoned,
            memory_mib=Amount(memory, card.memory_mib),
            cores=Amount(cores, card.cores),
            slots=Amount(slots, card.slots),
            shares=tuple(counted.shares[inventory.node][card.uuid]),
            double_booked_by=claims.get(card.uuid, ()) if card.uuid in held else (),
            burst_memory_mib=sum(charge.burst_memory_mib for charge in charges if charge.uuid == card.uuid),
            burst_cores=sum(charge.burst_cores for charge in charges if charge.uuid == card.uuid),
        )
