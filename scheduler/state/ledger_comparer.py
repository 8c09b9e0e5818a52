"""Finds out that the ledger is wrong. What a pod still holds after its end is released at once.

Only a new term, which reads everything again, can repair anything else.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from cluster.api import ReadApi
from cluster.errors import ClusterError, NotFoundError
from cluster.informer import Informer
from cluster.resource import PODS
from scheduler.metrics.instruments import Metrics
from scheduler.objects import Pod
from scheduler.pacing import Pacer
from scheduler.state.cluster_state import ClusterState
from scheduler.state.comparison import Difference, differences

log = logging.getLogger(__name__)

_SETTLE_SECONDS: Final = 1.0
"""The time between two comparisons; a difference that both find is not that of a change in progress."""
_SLICE_SECONDS: Final = 0.005
"""A comparison is in no hurry, so it interrupts itself more often than a decision does."""
_MOST_LOGGED: Final = 20


class LedgerComparer:
    """Compares the ledger regularly with a recount."""

    def __init__(
        self,
        api: ReadApi,
        *,
        state: ClusterState,
        pods: Informer[Pod],
        being_bound: Callable[[], frozenset[str]],
        metrics: Metrics,
        seconds: float,
        settle_seconds: float = _SETTLE_SECONDS,
    ) -> None:
        """Compare every `seconds`; `pods` must pass each change on to `state` at once.

        `being_bound` returns the UIDs of the pods whose Bindings are under way.
        """
        self._api = api
        self._state = state
        self._pods = pods
        self._being_bound = being_bound
        self._metrics = metrics
        self._seconds = seconds
        self._settle_seconds = settle_seconds

    async def run(self) -> None:
        """Compare until cancelled, or until a difference lasts that is not an orphan: then the ledger is not usable.

        The informers must be complete.
        """
        while True:
            # Not at once: a new term has just read everything, and has pods to place.
            await asyncio.sleep(self._seconds)
            lasting = await self._lasting()
            self._metrics.ledger_comparisons.inc()
            for each in lasting:
                self._metrics.ledger_differences.labels(each.kind).inc()
            if lasting:
                _log(lasting)
            for each in lasting:
                if each.orphan is not None:
                    self._state.drop_pod(each.orphan)
            if any(each.orphan is None for each in lasting):
                return

    async def _lasting(self) -> list[Difference]:
        """Return the differences that a second comparison finds, too, and that no Binding explains."""
        first = {each.key for each in await self._compare()}
        if not first:
            return []
        await asyncio.sleep(self._settle_seconds)
        return [each for each in await self._compare() if each.key in first and not await self._is_in_flight(each)]

    async def _compare(self) -> list[Difference]:
        steps = differences(self._state, self._pods, being_bound=self._being_bound())
        return await Pacer(slice_seconds=_SLICE_SECONDS).run(steps)

    async def _is_in_flight(self, difference: Difference) -> bool:
        """Whether the API server knows a node of the pod, or its end, that the informer has not shown yet."""
        pod = difference.unbound
        if pod is None:
            return False
        try:
            current = await self._api.get(PODS, Pod, name=pod.metadata.name, namespace=pod.metadata.namespace)
        except NotFoundError:
            return True
        except ClusterError as error:
            log.info("pod %s, which is counted without a node, cannot be read: %s", pod, error)
            return True
        return current.uid != pod.uid or current.finished or bool(current.spec.node_name)


def _log(lasting: list[Difference]) -> None:
    for each in lasting[:_MOST_LOGGED]:
        log.error("the ledger differs from a recount: %s: %s", each.kind, each.text)
    if len(lasting) > _MOST_LOGGED:
        log.error("the ledger differs from a recount in %d more ways", len(lasting) - _MOST_LOGGED)
