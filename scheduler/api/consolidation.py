"""Moves pods for one that waits, when an administrator asks for it."""

import msgspec

from cluster.informer import Informer
from scheduler.api.consolidation_types import ConsolidationExplanation, ConsolidationProgress
from scheduler.api.evictions import explained
from scheduler.consolidation.consolidator import Consolidator
from scheduler.objects import Pod


class Consolidation(msgspec.Struct, frozen=True):
    """The consolidator of a term, and the informer with all pods."""

    consolidator: Consolidator
    pods: Informer[Pod]

    async def begin(self, namespace: str, name: str, *, most_moves: int | None) -> ConsolidationExplanation | None:
        """Begin with the moves for a pod, if they are not more than `most_moves`; return None if it does not exist."""
        pod = self.pods.get(name, namespace)
        if pod is None:
            return None
        return explained(await self.consolidator.begin(pod, most_moves=most_moves))

    def progress(self, namespace: str, name: str) -> ConsolidationProgress | None:
        """Return how far the moves for a pod are; None if it does not exist, or no moves for it are known."""
        pod = self.pods.get(name, namespace)
        if pod is None:
            return None
        current, ended = self.consolidator.progress(pod.uid), self.consolidator.ended
        if current is not None:
            return ConsolidationProgress("moving", current.done, current.total)
        if ended is None or ended.uid != pod.uid:
            return None
        return ConsolidationProgress("ended", outcome=ended.outcome.value, why=ended.why)
