"""The shares of cards that the pods of one namespace use, without those of other namespaces."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from allocation.errors import AllocationError
from allocation.ledger.ledger import Ledger
from allocation.reasons import NodeRejection
from allocation.steps import Steps
from scheduler.api.namespaced.shares_types import NamespaceShares, PodShare, SharedCard, SharedNode
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from scheduler.state.running_allocation import running_allocation


def view(state: ClusterState, pods: Iterable[Pod], namespace: str) -> Steps[NamespaceShares]:
    """Return the shares of those `pods` that are in `namespace`."""
    shares: defaultdict[str, defaultdict[str, list[PodShare]]] = defaultdict(lambda: defaultdict(list))
    for pod in sorted((each for each in pods if each.metadata.namespace == namespace), key=str):
        for node, uuid, share in _shares(state, pod):
            shares[node][uuid].append(share)
        yield
    closed = state.closed_nodes.now() if shares else {}
    return NamespaceShares(
        namespace,
        tuple(
            _node(state.ledger, name, shares=by_card, rejection=closed.get(name))
            for name, by_card in sorted(shares.items())
        ),
    )


def _shares(state: ClusterState, pod: Pod) -> Iterator[tuple[str, str, PodShare]]:
    node = pod.spec.node_name
    try:
        held = running_allocation(pod, state.settings)
    except AllocationError:
        return
    if held is None:
        return
    name, (allocation, charges) = pod.metadata.name, held
    claim = allocation.claim.name if allocation.claim is not None else ""
    whole = {charge.uuid for charge in charges if charge.whole}
    for container, shares in allocation.containers.items():
        for share in shares:
            shown = PodShare(
                name,
                container,
                share.memory_mib,
                share.cores,
                claim,
                share.uuid in whole,
                memory_limit_mib=share.memory_limit_mib,
                cores_limit=share.cores_limit,
            )
            yield node, share.uuid, shown


def _node(
    ledger: Ledger, name: str, *, shares: dict[str, list[PodShare]], rejection: NodeRejection | None
) -> SharedNode:
    inventory, row = ledger.inventory(name), ledger.row(name)
    cards = tuple(
        SharedCard(
            index=card.index,
            uuid=card.uuid,
            model=card.model,
            mode=card.mode,
            healthy=card.healthy,
            cordoned=bool(ledger.cordoned[row, position]),
            memory_mib=card.memory_mib,
            cores=card.cores,
            slots=card.slots,
            shares=tuple(shares[card.uuid]),
        )
        for position, card in enumerate(inventory.cards if inventory is not None else ())
        if card.uuid in shares
    )
    if rejection is None:
        return SharedNode(name, "", "", cards)
    return SharedNode(name, rejection.code.value, rejection.public_text, cards)
