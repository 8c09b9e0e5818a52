"""Consistency check: compares the ledger with a recount from pods and inventories, as after a restart.

The check runs in small steps, each of which is consistent in itself, so that scheduling continues between them.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import TypeVar

from allocation.allocation import Charge
from allocation.errors import AllocationError
from allocation.ledger.ledger import Ledger
from cluster.informer import Informer
from scheduler.metrics.instruments import Metrics
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from scheduler.state.running_allocation import running_allocation

log = logging.getLogger(__name__)

_STEP = 50

T = TypeVar("T")


class LedgerComparer:
    """Recounts regularly; logs and counts the differences. Only a new term, which reads all again, removes them."""

    def __init__(self, *, state: ClusterState, pods: Informer[Pod], metrics: Metrics, seconds: float) -> None:
        """Recount every `seconds`; `pods` must pass each change on to `state` at once."""
        self._state = state
        self._pods = pods
        self._metrics = metrics
        self._seconds = seconds

    async def run(self) -> None:
        """Recount until cancelled; the informers must be complete."""
        while True:
            # Not at once: a new term has just read everything, and has pods to place.
            await asyncio.sleep(self._seconds)
            async for text in differences(self._state, self._pods):
                log.error("the ledger differs from a recount: %s", text)
                self._metrics.ledger_differences.inc()
            self._metrics.ledger_comparisons.inc()


async def differences(state: ClusterState, pods: Informer[Pod]) -> AsyncIterator[str]:
    """Return a text for each pod and each card for which the ledger disagrees with pods and inventories."""
    ledger = state.ledger
    live = {pod.uid for pod in pods if pod.spec.node_name and not pod.finished}
    confirmed = [each for each in ledger.reservations() if not each.assumed and each.is_pod]
    for each in confirmed:
        if each.uid not in live:
            yield f"the pod with UID {each.uid} does not exist, but holds a share of node {each.node}"
    for some in _steps(iter(pods)):
        for pod in some:
            current = pods.get(pod.metadata.name, pod.metadata.namespace)
            if current is not None and (text := _pod_difference(state, current)):
                yield text
        await asyncio.sleep(0)
    for names in _steps(iter(ledger.nodes)):
        for node in names:
            if text := _card_difference(ledger, node):
                yield text
        await asyncio.sleep(0)


def _pod_difference(state: ClusterState, pod: Pod) -> str:
    if pod.finished or not pod.spec.node_name:
        return ""
    try:
        counted = running_allocation(pod, state.settings)
    except AllocationError:
        return ""  # the pod closes its node, whatever the ledger holds for it
    expected: tuple[Charge, ...] | None = counted[1] if counted is not None else None
    held = state.ledger.reservation(pod.uid)
    actual = held.charges if held is not None and held.node == pod.spec.node_name else None
    if actual == expected:
        return ""
    return f"pod {pod} on node {pod.spec.node_name} holds {expected}, the ledger has {actual} for it"


def _card_difference(ledger: Ledger, node: str) -> str:
    """Compare the columns of the ledger with the sum of its reservations on a node; return the first difference."""
    inventory, row = ledger.inventory(node), ledger.row(node)
    if inventory is None or row is None:
        return ""
    fresh = Ledger(rows=1, cards=max(1, len(inventory.cards)))
    fresh.set_node(inventory)
    for each in ledger.reservations(node):
        fresh.record(each.uid, node, each.charges)
    for position, card in enumerate(inventory.cards):
        expected, actual = fresh.used[:, 0, position].tolist(), ledger.used[:, row, position].tolist()
        if expected != actual:
            return f"card {card.uuid} of node {node}: its pods hold {expected}, its columns have {actual}"
    return ""


def _steps(items: Iterator[T]) -> Iterator[list[T]]:
    while some := list(islice(items, _STEP)):
        yield some
