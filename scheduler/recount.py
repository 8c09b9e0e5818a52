"""The ledger held against what it is the sum of: what a restart would count must be what is counted now.

Looked at in small steps, each of which is true by itself, so that decisions go on in between.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import TypeVar

from allocation import holding
from allocation.allocation import Charge
from allocation.errors import AllocationError
from allocation.ledger import Ledger
from cluster.reflector import Reflector
from scheduler.metrics import Metrics
from scheduler.mig_wishes import PROMISE
from scheduler.objects import Pod
from scheduler.state import State

log = logging.getLogger(__name__)

_STEP = 50

T = TypeVar("T")


class Recounter:
    """Recounts regularly. What diverges is logged and counted; a new term, which reads everything anew, cures it."""

    def __init__(self, *, state: State, pods: Reflector[Pod], metrics: Metrics, seconds: float) -> None:
        """Recount every so many seconds; `pods` must tell `state` of each change at once."""
        self._state = state
        self._pods = pods
        self._metrics = metrics
        self._seconds = seconds

    async def run(self) -> None:
        """Recount until cancelled; the caches must be complete."""
        while True:
            # Not at once: a term begins with what it has just read, and has pods to place.
            await asyncio.sleep(self._seconds)
            async for text in divergences(self._state, self._pods):
                log.error("the ledger is not what a recount gives: %s", text)
                self._metrics.divergences.inc()
            self._metrics.recounts.inc()


async def divergences(state: State, pods: Reflector[Pod]) -> AsyncIterator[str]:
    """Answer each pod and each node of which the ledger has other numbers than pods and inventories give."""
    ledger = state.ledger
    live = {pod.uid for pod in pods if pod.spec.node_name and not pod.finished}
    lost = [each for each in ledger.holdings() if not each.assumed and not each.uid.startswith(PROMISE)]
    for each in lost:
        if each.uid not in live:
            yield f"pod with UID {each.uid} is gone and holds a share of node {each.node}"
    for some in _steps(iter(pods)):
        for pod in some:
            now = pods.get(pod.metadata.name, pod.metadata.namespace)
            if now is not None and (text := _of_pod(state, now)):
                yield text
        await asyncio.sleep(0)
    for names in _steps(iter(ledger.nodes)):
        for node in names:
            if text := _of_node(ledger, node):
                yield text
        await asyncio.sleep(0)


def _of_pod(state: State, pod: Pod) -> str:
    if pod.finished or not pod.spec.node_name:
        return ""
    try:
        found = holding.of_pod(pod.spec, pod.metadata.annotations, node=pod.spec.node_name, settings=state.settings)
    except AllocationError:
        return ""  # it closes its node, whatever the ledger has
    expected: tuple[Charge, ...] | None = found[1] if found is not None else None
    held = state.ledger.holding(pod.uid)
    actual = held.charges if held is not None and held.node == pod.spec.node_name else None
    if actual == expected:
        return ""
    return f"pod {pod} on node {pod.spec.node_name} has {expected}, the ledger {actual}"


def _of_node(ledger: Ledger, node: str) -> str:
    """Add up what the ledger says that pods hold of a node, and compare its columns with that."""
    inventory, row = ledger.inventory(node), ledger.row(node)
    if inventory is None or row is None:
        return ""
    fresh = Ledger(rows=1, cards=max(1, len(inventory.cards)))
    fresh.set_node(inventory)
    for each in ledger.holdings(node):
        fresh.record(each.uid, node, each.charges)
    for position, card in enumerate(inventory.cards):
        expected, actual = fresh.used[:, 0, position].tolist(), ledger.used[:, row, position].tolist()
        if expected != actual:
            return f"card {card.uuid} of node {node}: its pods hold {expected}, its columns say {actual}"
    return ""


def _steps(items: Iterator[T]) -> Iterator[list[T]]:
    while some := list(islice(items, _STEP)):
        yield some
