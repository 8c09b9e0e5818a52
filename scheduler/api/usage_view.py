"""What pods really use, from the last measurements of the agents."""

from collections.abc import Iterable, Iterator

from allocation.ledger.ledger import Ledger
from allocation.steps import Steps
from scheduler.api.usage_types import ContainerUse, DeviceUse, PodUse, UsageView
from scheduler.measurements.use_of_shares import UseOfShares
from scheduler.objects import Pod

OFF = "the scheduler does not read measurements (scheduler.measurements.read_seconds is 0)"


def view(use: UseOfShares | None, ledger: Ledger, pods: Iterable[Pod], *, namespace: str = "") -> Steps[UsageView]:
    """Return what those `pods` use that are in `namespace`, and no more; or what all use, and the cards."""
    if use is None:
        return UsageView((), problem=OFF)
    found: list[PodUse] = []
    for pod in sorted((each for each in pods if namespace in ("", each.metadata.namespace)), key=str):
        found += _of_pod(use, ledger, pod)
        yield
    devices: list[DeviceUse] = []
    for node in () if namespace else tuple(ledger.nodes):
        devices += _of_node(use, ledger, node)
        yield
    return UsageView(tuple(found), tuple(devices))


def _of_pod(use: UseOfShares, ledger: Ledger, pod: Pod) -> Iterator[PodUse]:
    reservation = ledger.reservation(pod.uid)
    if reservation is None:
        return
    for uuid in sorted({charge.uuid for charge in reservation.charges}):
        share = use.of(reservation.node, pod.uid, uuid)
        yield PodUse(
            namespace=pod.metadata.namespace,
            pod=pod.metadata.name,
            uid=pod.uid,
            node=reservation.node,
            device=uuid,
            use=share.use,
            inactive_seconds=share.inactive_seconds,
            containers=tuple(
                ContainerUse(each.container_id, each.memory_bytes, each.utilization_percent)
                for each in share.containers
            ),
            problem=share.problem,
        )


def _of_node(use: UseOfShares, ledger: Ledger, node: str) -> Iterator[DeviceUse]:
    inventory = ledger.inventory(node)
    for card in inventory.cards if inventory is not None else ():
        measured = use.device(node, card.uuid)
        if measured is not None:
            yield DeviceUse(node, card.uuid, measured.memory_used_bytes, measured.utilization_percent)
