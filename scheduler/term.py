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
from scheduler.assignments import Assignments
from scheduler.binding.node_locks import NodeLocks
from scheduler.binding.volume_binder import VolumeBinder
from scheduler.consolidation.consolidator import Consolidator
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.dra import handed_over_pods
from scheduler.expansion.expander import Expander
from scheduler.extender.verbs import Extender
from scheduler.informers import Informers
from scheduler.kube_scheduler_lease import KubeSchedulerLease
from scheduler.measurements.use_of_shares import UseOfShares
from scheduler.objects import Pod
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
        use: what pods really use of their cards; None if it is not read.
        extender: the verbs by which kube-scheduler has pods scheduled; None without one.
        kube_scheduler: the Lease of this kube-scheduler; None without one, or without an election.
    """

    def __init__(
        self,
        *,
        informers: Informers,
        cycle: SchedulingCycle,
        locks: NodeLocks,
        volumes: VolumeBinder | None,
        scheduling: Scheduling,
        extender: Extender | None,
        kube_scheduler: KubeSchedulerLease | None,
        preemptor: Preemptor,
        consolidator: Consolidator | None,
        comparer: LedgerComparer,
        use: UseOfShares | None,
        assignments: Assignments | None,
        expander: Expander | None,
        chores: tuple[Callable[[], Coroutine[None, None, None]], ...],
    ) -> None:
        """Run `scheduling`, `preemptor` and `chores` concurrently until `comparer` ends; see `scheduler.term_builder`.

        `volumes` has the volumes of pods bound, and `consolidator` moves pods; None where kube-scheduler has the queue.
        `assignments` are the numbers of pods; None where none are assigned.
        `expander` asks for nodes; None unless that is switched on. `extender` and `kube_scheduler` are the attributes.
        """
        self._informers = informers
        self._cycle = cycle
        self._volumes = volumes
        self._scheduling = scheduling
        self._preemptor = preemptor
        self._consolidator = consolidator
        self._comparer = comparer
        self.use = use
        self._expander = expander
        self._chores = chores
        self._assignments = assignments
        self.locks = locks
        self.extender = extender
        self.kube_scheduler = kube_scheduler
        self.is_deciding = False
        self.is_wrong = False

    @property
    def state(self) -> ClusterState:
        """The state of the cluster as this term knows it."""
        return self._cycle.state

    @property
    def informers(self) -> Informers:
        """The objects that this term reads."""
        return self._informers

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
        return Queries(
            self._cycle,
            evictions,
            self._informers.pods,
            self._waits_for,
            use=self.use,
            expansion=self._expander.note if self._expander is not None else lambda _: "",
        )

    def _waits_for(self, pod: Pod) -> str:
        """Return why a pod of kube-scheduler waits whatever the nodes have, or an empty string."""
        is_handed_over = self.state.is_handed_over(pod) and not pod.spec.node_name
        silence = handed_over_pods.note(self.kube_scheduler) if is_handed_over and self.kube_scheduler else ""
        return silence or (self.extender.waits_for_gang(pod) if self.extender is not None else "")

    @property
    def consolidation(self) -> Consolidation | None:
        """What moves pods when an administrator asks for it; None where kube-scheduler has the queue."""
        return Consolidation(self._consolidator, self._informers.pods) if self._consolidator is not None else None

    @property
    def assignments(self) -> tuple[Assignments, Callable[[str, str], Pod | None]] | None:
        """The numbers of pods, and what returns a pod by its name and namespace; None where none are assigned."""
        return (self._assignments, self._informers.pods.get) if self._assignments is not None else None

    async def run(self, *, wait_seconds: float) -> None:
        """Wait, read the state, and schedule until cancelled, the Lease is too old to be trusted, or the ledger wrong.

        Requests of the previous leader may still be under way; after `wait_seconds` the lists that are read include
        what they wrote.
        """
        await asyncio.sleep(wait_seconds)
        async with asyncio.TaskGroup() as group:
            reading = [group.create_task(informer.run()) for informer in self._informers]
            with process.settling():
                for informer in self._informers:
                    await informer.synced.wait()
            log.info(
                "scheduling: %d nodes with cards, %s, %d pods without a node",
                len(self.ledger.nodes),
                ", ".join(f"{len(informer)} {informer.plural}" for informer in self._informers),
                len(self.state.queue),
            )
            await self._preemptor.restore(self._informers.pods)
            self.is_deciding = True
            optional = [each.run for each in (self._consolidator, self._expander) if each is not None]
            working = [group.create_task(chore()) for chore in (*self._chores, self._preemptor.run, *optional)]
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
