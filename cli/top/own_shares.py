"""`kubectl gpu top` for users with rights in one namespace only: the shares of its pods, from the scheduler's API."""

from collections.abc import Iterator

from cli.top.usage import CORDONED, Amount, CardUsage, Condition, FleetUsage, NodeUsage, Share
from cluster.gpu_node_status import UNHEALTHY
from scheduler.api.namespaced.shares_types import NamespaceShares, SharedCard, SharedNode


def fleet(own: NamespaceShares) -> FleetUsage:
    """Return the nodes and cards on which the namespace has shares; the amounts used count this namespace only."""
    return FleetUsage(
        tuple(
            NodeUsage(
                name=node.name,
                agent="Unknown",
                silent_since="",
                conditions=tuple(_conditions(node)),
                cards=tuple(_card(card, own.namespace) for card in node.cards),
            )
            for node in own.nodes
        )
    )


def _conditions(node: SharedNode) -> Iterator[Condition]:
    if node.closed:
        yield Condition(node.closed, f"node {node.name} takes no GPU pods: {node.reason}")
    for condition, uuids in (
        (UNHEALTHY, [card.uuid for card in node.cards if not card.healthy]),
        (CORDONED, [card.uuid for card in node.cards if card.cordoned]),
    ):
        if uuids:
            yield Condition(condition, ", ".join(f"card {uuid}" for uuid in uuids), len(uuids))


def _card(card: SharedCard, namespace: str) -> CardUsage:
    shares = tuple(
        Share(
            namespace,
            each.pod,
            each.container,
            each.memory_mib,
            each.cores,
            each.claim,
            each.whole,
            memory_limit_mib=each.memory_limit_mib,
            cores_limit=each.cores_limit,
        )
        for each in card.shares
    )
    memory, cores, slots = _use(card)
    return CardUsage(
        index=card.index,
        uuid=card.uuid,
        model=card.model,
        mode=card.mode,
        healthy=card.healthy,
        message="",
        cordoned=card.cordoned,
        memory_mib=Amount(memory, card.memory_mib),
        cores=Amount(cores, card.cores),
        slots=Amount(slots, card.slots),
        shares=shares,
        burst_memory_mib=sum(max(each.memory_limit_mib - each.memory_mib, 0) for each in card.shares),
        burst_cores=sum(max(each.cores_limit - each.cores, 0) for each in card.shares),
    )


def _use(card: SharedCard) -> tuple[int, int, int]:
    """Return the MiB, millicards and slots in use; the containers of a GpuClaim have one share together."""
    if any(each.whole for each in card.shares):
        return card.memory_mib, card.cores, card.slots
    held = {(each.pod, each.claim or each.container, bool(each.claim)): each for each in card.shares}.values()
    return sum(each.memory_mib for each in held), sum(each.cores for each in held), len(held)
