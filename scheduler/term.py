"""One term as leader: read the state from the API server, then schedule until the Lease is lost.

Each term begins with an empty state, so that no assumption of an earlier term survives.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Protocol

from allocation.ledger.ledger import Ledger
from cluster import process
from scheduler.api.consolidation import Consolidation
from scheduler.api.evictions import Evictions
from scheduler.api.queries import Queries
from scheduler.binding.node_locks import NodeLocks
from scheduler.binding.volume_binder import VolumeBinder
from scheduler.consolidation.consolidator import Consolidator
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.extender.verbs import Extender
from scheduler.informers import Informers
from scheduler.preemption.preemptor import Preemptor
from scheduler.state.cluster_state import ClusterState
from scheduler.state.ledger_comparer import LedgerComparer

log = logging.getLogger(__name__)


class Scheduling(Protocol):
    """What schedules pods: the loop, or the verbs that kube-scheduler calls."""

    @property
    def being_bound(self) -> frozenset[str]:
        """The UIDs of the pods whose Bindings are under way."""

    async def run(self) -> None:
        """Schedule until cancelled, or until this replica is not trusted any more."""

    async def drain(self, seconds: float) -> bool:
        """Wait for the writes under way, at most `seconds`; return whether none is left."""

    def abandon(self) -> None:
        """Cancel the writes under way."""


class LeaderTerm:
    """The informers, the state and the scheduling of one term.

    Attributes:
        is_deciding: whether the informers are complete and pods are being scheduled.
        is_wrong: whether the term has ended because its ledger differs from a recount.
        locks: the locks of nodes that HAMi's device plugin serves.
        extender: the verbs by which kube-scheduler has pods scheduled; None where the loop schedules.
    """

    def __init__(
        self,
        *,
        informers: Informers,
        cycle: SchedulingCycle,
        locks: NodeLocks,
        volumes: VolumeBinder | None,
        scheduling: Scheduling,
        preemptor: Preemptor,
        consolidator: Consolidator | None,
        comparer: LedgerComparer,
        chores: tuple[Callable[[], Coroutine[None, None, None]], ...],
    ) -> None:
        """Run `scheduling`, `preemptor` and `chores` concurrently until `comparer` ends; see `scheduler.term_builder`.

        `volumes` has the volumes of pods bound, and `consolidator` moves pods; None where kube-scheduler has the queue.
        """
        self._informers = informers
        self._cycle = cycle
        self._volumes = volumes
        self._scheduling = scheduling
        self._preemptor = preemptor
        self._consolidator = consolidator
        self._comparer = comparer
        self._chores = chores
        self.locks = locks
        self.extender = scheduling if isinstance(scheduling, Extender) else None
        self.is_deciding = False
        self.is_wrong = False

    @property
    def state(self) -> ClusterState:
        """The state of the cluster as this term knows it."""
        return self._cycle.state

    @property
    def problem(self) -> str:
        """What keeps the informers from being complete; empty if nothing has failed."""
        return next((informer.problem for informer in self._informers if informer.problem), "")

    @property
    def ledger(self) -> Ledger:
        """The reservations of this term."""
        return self._cycle.state.ledger

    @property
    def queries(self) -> Queries:
        """The queries of the API about this term."""
        consolidator = self._consolidator
        planner = consolidator.planner if consolidator is not None else None
        evictions = Evictions(self._preemptor.chooser, planner, self._preemptor.gang_chooser)
        if self.extender is None:
            return Queries(self._cycle, evictions, self._informers.pods)
        return Queries(self._cycle, evictions, self._informers.pods, self.extender.waits_for_gang)

    @property
    def consolidation(self) -> Consolidation | None:
        """What moves pods when an administrator asks for it; None where kube-scheduler has the queue."""
        return Consolidation(self._consolidator, self._informers.pods) if self._consolidator is not None else None

    async def run(self, *, wait_seconds: float) -> None:
        """Wait, read the state, and schedule until cancelled, the Lease is too old to be trusted, or the ledger wrong.

        Requests of the previous leader may still be under way; after `wait_seconds` the lists that are read include
        what they wrote.
        """
        await asyncio.sleep(wait_seconds)
        async with asyncio.TaskGroup() as group:
            reading = [group.create_task(informer.run()) for informer in self._informers]
            for informer in self._informers:
                await informer.synced.wait()
            process.settle()
            log.info(
                "scheduling: %d nodes with cards, %s, %d pods without a node",
                len(self.ledger.nodes),
                ", ".join(f"{len(informer)} {informer.plural}" for informer in self._informers),
                len(self.state.queue),
            )
            await self._preemptor.restore(self._informers.pods)
            self.is_deciding = True
            moving = (self._consolidator.run,) if self._consolidator is not None else ()
            working = [group.create_task(chore()) for chore in (*self._chores, self._preemptor.run, *moving)]
            scheduling = group.create_task(self._scheduling.run())
            comparing = group.create_task(self._comparer.run())
            await asyncio.wait((scheduling, comparing), return_when=asyncio.FIRST_COMPLETED)
            self.is_wrong = comparing.done()
            self.is_deciding = not self.is_wrong
            for task in (*reading, *working, scheduling, comparing):
                task.cancel()

    async def drain(self, seconds: float) -> bool:
        """Wait for the writes under way, at most `seconds`; return whether none is left."""
        self.locks.close()
        if self._volumes is not None:
            self._volumes.close()
        return await self._scheduling.drain(seconds)

    def abandon(self) -> None:
        """Cancel the writes under way; the next leader reads from the API server which of them took effect."""
        self._scheduling.abandon()
