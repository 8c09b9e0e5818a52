"""One node: its cards, the shares of each, what is reserved for no pod, and how the cards are connected."""

from collections.abc import Iterator
from itertools import chain

import msgspec

from allocation.errors import AllocationError
from allocation.ledger.card_table import CORES, MEMORY, SLOTS
from allocation.ledger.ledger import Reservation
from allocation.steps import Steps
from allocation.topology.layout import Matrix
from cluster.gpu_node_status import Status
from scheduler.api.json_names import json_name
from scheduler.holds import PREFIX
from scheduler.objects import Pod
from scheduler.state.running_allocation import running_allocation
from scheduler.term import LeaderTerm
from scheduler.ui.history import History
from scheduler.ui.sections.rows import LONGEST_TEXT, Keyed, fill
from scheduler.ui.table import Table
from scheduler.ui.viewer import CLUSTER


class NodeRow(msgspec.Struct, frozen=True, rename=json_name, tag_field="kind", tag="node"):
    """The node.

    Attributes:
        closed: the code of why it takes no new GPU pods; empty if it does.
        reason: the same in words.
        cordoned: whether it is cordoned in Kubernetes.
        exists: whether Kubernetes has such a node.
        isolation: what can enforce limits there; None if no agent reports it.
        driver_version: empty if it is not known.
        delivery: how containers get their cards.
        links: the indexes of its undivided cards, the tier of each pair and the GB/s of its links; None if no card is
            known.
    """

    closed: str
    reason: str
    cordoned: bool
    exists: bool
    isolation: tuple[str, ...] | None
    driver_version: str
    delivery: str
    links: tuple[tuple[int, ...], Matrix, Matrix] | None


class CardRow(msgspec.Struct, frozen=True, rename=json_name, tag_field="kind", tag="card"):
    """A card, or a MIG instance with the UUID of its card as `parent`; total and used MiB, millicards and slots."""

    position: int
    index: int
    uuid: str
    model: str
    mode: str
    numa: int
    parent: str
    profile: str
    healthy: bool
    message: str
    cordoned: bool
    total: tuple[int, int, int]
    used: tuple[int, int, int]


class ShareRow(msgspec.Struct, frozen=True, rename=json_name, tag_field="kind", tag="share"):
    """A share of a card: of a container, or of a pod as a whole whose Binding is in progress (`container` is empty).

    `claim` is the GpuClaim whose containers have the share together.
    """

    uuid: str
    pod: str
    container: str
    memory_mib: int
    cores: int
    whole: bool
    claim: str = ""


class ReservedRow(msgspec.Struct, frozen=True, rename=json_name, tag_field="kind", tag="reserved"):
    """What is kept from pods: `by` is `hold` for the pod `pod`, `lease` or `dra`."""

    uuid: str
    by: str
    pod: str
    memory_mib: int
    cores: int
    whole: bool


class HistoryRow(msgspec.Struct, frozen=True, rename=json_name, tag_field="kind", tag="history"):
    """The used MiB of a card in each of the last 60 minutes, the oldest first; -1 of one that is not known.

    `minute` is the last one, in Unix minutes.
    """

    uuid: str
    minute: int
    memory_mib: tuple[int, ...]


class NodeDetail:
    """The rows of one node."""

    def __init__(self, term: LeaderTerm, node: str, history: History) -> None:
        self._state, self._informers, self._node = term.state, term.informers, node
        self._history = history

    def refresh(self, table: Table) -> Steps[None]:
        """Read the node."""
        yield from fill(table, chain((self._own(),), self._cards(), self._shares(), self._past()))

    def _own(self) -> Keyed:
        node, report = self._informers.nodes.get(self._node), self._report()
        rejection, inventory = self._state.closed_nodes.now().get(self._node), self._state.ledger.inventory(self._node)
        layout = inventory.layout if inventory is not None else None
        row = NodeRow(
            closed=rejection.code.value if rejection is not None else "",
            reason=rejection.public_text[:LONGEST_TEXT] if rejection is not None else "",
            cordoned=node is not None and node.spec.unschedulable,
            exists=node is not None,
            isolation=tuple(report.isolation) if report is not None else None,
            driver_version=report.driver_version if report is not None else "",
            delivery=self._state.deliveries.of(self._node),
            links=(layout.ids, layout.tiers, layout.bandwidth) if layout is not None else None,
        )
        return "node", "", row

    def _cards(self) -> Iterator[Keyed]:
        ledger, row = self._state.ledger, self._state.ledger.row(self._node)
        inventory, report = ledger.inventory(self._node), self._report()
        if row is None or inventory is None:
            return
        messages = {each.uuid: each.message for each in report.devices} if report is not None else {}
        used = ledger.used_lists(row)
        for position, card in enumerate(inventory.cards):
            yield (
                f"card/{card.uuid}",
                "",
                CardRow(
                    position=position,
                    index=card.index,
                    uuid=card.uuid,
                    model=card.model,
                    mode=card.mode,
                    numa=card.numa,
                    parent=card.parent,
                    profile=card.instance.profile if card.instance is not None else "",
                    healthy=bool(ledger.healthy[row, position]),
                    message=messages.get(card.uuid, "")[:LONGEST_TEXT],
                    cordoned=bool(ledger.cordoned[row, position]),
                    total=(card.memory_mib, card.cores, card.slots),
                    used=(used[MEMORY][position], used[CORES][position], used[SLOTS][position]),
                ),
            )

    def _shares(self) -> Iterator[Keyed]:
        for reservation in tuple(self._state.ledger.reservations(self._node)):
            pod = self._state.running.get(reservation.uid) or self._state.queue.pod(reservation.uid)
            if not reservation.is_pod:
                yield from self._reserved(reservation)
            elif pod is not None:
                yield from self._of_pod(pod, reservation)

    def _of_pod(self, pod: Pod, reservation: Reservation) -> Iterator[Keyed]:
        namespace, name = pod.metadata.namespace, str(pod)
        try:
            held = running_allocation(pod, self._state.settings)
        except AllocationError:
            held = None
        if held is None:
            for charge in reservation.charges:
                row = ShareRow(charge.uuid, name, "", charge.memory_mib, charge.cores, charge.whole)
                yield f"share/{name}//{charge.uuid}", namespace, row
            return
        allocation, claim = held[0], held[0].claim
        for container, shares in allocation.containers.items():
            for share in shares:
                row = ShareRow(
                    share.uuid,
                    name,
                    container,
                    share.memory_mib,
                    share.cores,
                    share.whole,
                    claim.name if claim is not None else "",
                )
                yield f"share/{name}/{container}/{share.uuid}", namespace, row

    def _reserved(self, reservation: Reservation) -> Iterator[Keyed]:
        kind, _, uid = reservation.uid.partition(":")
        pod = self._state.queue.pod(uid) if reservation.uid.startswith(PREFIX) else None
        for charge in reservation.charges:
            row = ReservedRow(
                charge.uuid,
                kind,
                str(pod) if pod is not None else "",
                charge.memory_mib,
                charge.cores,
                charge.whole,
            )
            yield (
                f"reserved/{reservation.uid}/{charge.uuid}",
                pod.metadata.namespace if pod is not None else CLUSTER,
                row,
            )

    def _past(self) -> Iterator[Keyed]:
        minute, used = self._history.of(self._node)
        for uuid, amounts in used.items():
            yield f"history/{uuid}", "", HistoryRow(uuid, minute, tuple(amounts))

    def _report(self) -> Status | None:
        status = self._informers.statuses.get(self._node)
        return status.status if status is not None else None
