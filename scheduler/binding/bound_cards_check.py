"""Before a pod's Binding: its GPUBindings still give it the cards that were chosen, says the API server itself.

The local copy may be behind. A card whose binding has just been deleted may already belong to another application.
"""

import asyncio

from allocation.bindings import grants
from allocation.bindings.bound_cards import BoundCards
from allocation.settings import BindingSettings
from cluster.api import ReadApi
from cluster.errors import NotFoundError
from cluster.gpu_binding import GpuBinding
from cluster.informer import SURVIVED
from cluster.resource import GPU_BINDINGS
from scheduler.binding.binder import Result
from scheduler.cycle.result import Scheduled
from scheduler.metrics.labels import Outcome
from scheduler.objects import Pod


class BoundCardsCheck:
    """Reads the bindings of the chosen cards."""

    def __init__(self, api: ReadApi, settings: BindingSettings) -> None:
        """Read from `api`; bindings count as the `settings` say."""
        self._api = api
        self._settings = settings

    async def confirm(self, pod: Pod, chosen: Scheduled) -> Result | None:
        """Return None if the pod may have the chosen cards, or the result if it may not or that cannot be read."""
        bound = chosen.bound
        if bound is None:
            return None
        names = sorted({card.grant.binding for card in bound.cards})
        read = await asyncio.gather(*map(self._read, names), return_exceptions=True)
        found = []
        for name, each in zip(names, read, strict=True):
            if isinstance(each, GpuBinding):
                found.append(each.binding)
            elif isinstance(each, NotFoundError):
                return _changed(f"GPUBinding {name} was deleted", bound)
            elif isinstance(each, SURVIVED):
                return Result(Outcome.REFUSED, f"GPUBinding {name} could not be read, trying again: {each}")
            else:
                raise each
        granted = grants.of_pod(
            found, bound.identity, pod.metadata.labels, require_namespace=self._settings.require_namespace
        )
        lost = [card.grant for card in bound.cards if card.grant not in granted]
        if lost:
            return _changed(f"GPUBinding {lost[0].binding} of card {lost[0].card} was changed", bound)
        return None

    async def _read(self, name: str) -> GpuBinding:
        return await self._api.get(GPU_BINDINGS, GpuBinding, name=name)


def _changed(what: str, bound: BoundCards) -> Result:
    note = f"{what} after the card was chosen for {bound.identity}: the pod is scheduled again"
    return Result(Outcome.REFUSED, note, reason="GpuBindingChanged")
