"""Evaluates pods with the scheduler's own functions, in this process. They compute with numpy."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Final

import msgspec

from allocation.fairness.queue_spec import QueueKey
from allocation.reasons import NodeReason
from allocation.steps import finish
from cli.errors import CommandError
from cli.explain import replicas
from cli.explain.evaluator import SimulatedWorkload, manifests_of
from cli.explain.planned_gangs import Simulate, together
from cli.explain.replicas import Replicas
from cli.installation.rules import Rules
from cli.liveness.liveness import Liveness, qualified
from cli.workloads.workload import Workload
from cluster.manifest import NotAdmittedError, UnreadableManifestError
from scheduler.api import explanation, gang_explanation, simulation
from scheduler.api.evictions import Evictions
from scheduler.api.explanation_types import Explanation
from scheduler.api.gang_explanation import Rehearsed
from scheduler.api.manifest_pod import SubmittedPod, UnknownSchedulerError, other_scheduler_message, read_pod
from scheduler.api.queue_explanation import waits_for
from scheduler.api.simulation_types import Simulation
from scheduler.consolidation.movable import Movable
from scheduler.consolidation.planner import Planner
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.gangs.gang import GangKey
from scheduler.objects import Pod
from scheduler.preemption.choice import Chooser
from scheduler.preemption.disruption_budgets import DisruptionBudgets
from scheduler.preemption.eligibility import Eligibility
from scheduler.queue.queue_order import WaitingDemand
from scheduler.state.cluster_state import ClusterState
from webhook import dry_run

_NOT_ELIGIBLE: Final = frozenset(
    {
        NodeReason.NodeNameMismatch,
        NodeReason.NodeSelectorMismatch,
        NodeReason.NodeTainted,
        NodeReason.NodeUnschedulable,
    }
)
"""For these reasons a DaemonSet has no pod on a node. For any other reason it has one, which waits."""
_ORDERED: Final = (
    "the StatefulSet creates no further pod until that one is ready, unless podManagementPolicy is Parallel"
)

_Submit = Callable[[int], SubmittedPod]
"""Returns the pod with a given number as admission would leave it; raises NotAdmittedError."""
_EVALUATED: Final = 50
"""How many waiting pods of higher tiers are evaluated; one that waits for cards to become free suffices to block."""
_WAITING: Final = ("fits", "waits")


class LocalEvaluator:
    """Evaluates pods in this process, over what the API server shows."""

    def __init__(
        self,
        state: ClusterState,
        chosen: Rules,
        alive: Liveness,
        *,
        budgets: DisruptionBudgets,
        namespace: str,
        cards_of: Collection[str] | None,
        pods_of: Callable[[str], Sequence[Pod]] = lambda _: (),
    ) -> None:
        """Use `namespace` for manifests that name none; `pods_of` returns the pods of a namespace that have not failed.

        The state needs no pods without a node but for gangs, and for GpuQueues.
        """
        self._pods_of = pods_of
        self._read_namespaces = set[str]()
        self._rehearsed: dict[GangKey, Rehearsed] = {}
        """What a decision about each gang would do: explanations change nothing that this depends on."""
        self.alive = alive
        self._state = state
        self._cycle = SchedulingCycle(state, weights=chosen.weights)
        self._evictions = evictions(state, chosen, budgets)
        self._admit = partial(dry_run.dry_run, allocation=chosen.allocation, settings=chosen.webhook)
        self._namespace = namespace
        self._cards_of = cards_of

    def explain(self, pod: Pod) -> Explanation:
        """See Evaluator."""
        self._read_gang(pod)
        rehearsed = self._rehearse(pod)
        explained = finish(
            explanation.explain(
                self._cycle, pod, evictions=self._evictions, rehearsed=rehearsed, cards_of=self._cards_of
            )
        )
        explained = msgspec.structs.replace(explained, queue=None)  # only the scheduler knows its queue
        explained = _with_blocker(self._cycle, explained)
        return qualified(explained, self.alive, is_created=True)

    def _rehearse(self, pod: Pod) -> Rehearsed:
        gang = self._state.gangs.of(pod.uid)
        if gang is None or not gang_explanation.is_rehearsed(self._state, pod):
            return None
        if gang.key not in self._rehearsed:
            self._rehearsed[gang.key] = finish(gang_explanation.rehearse(self._cycle, pod))
        return self._rehearsed[gang.key]

    def _read_gang(self, pod: Pod) -> None:
        """Read the other pods of a pod's gang into the state; they may wait as well, or have succeeded."""
        key, _ = self._state.gangs.joined(pod)
        if key is not None and key.namespace not in self._read_namespaces:
            self._read_namespaces.add(key.namespace)
            for each in self._pods_of(key.namespace):
                if self._state.gangs.joined(each)[0] is not None:
                    self._state.set_pod(each)

    def simulate(self, workload: Workload, *, every: bool, claims: Sequence[dict[str, Any]] = ()) -> SimulatedWorkload:
        """See Evaluator; with `every`, pods that fit stay reserved for the workloads that are simulated next."""
        try:
            submitted = self._submit(workload, 0, claims)
            if workload.make_on is not None:
                workload = workload.on(_eligible(self._state, submitted))
                submitted = self._submit(workload, 0, claims) if workload.total else submitted
        except NotAdmittedError as error:
            first = simulation.not_admitted(str(error))
            return first, replicas.only_first(workload, first)
        self._read_gang(submitted.pod)
        first = self._simulate(submitted)
        if not every:
            return first, replicas.only_first(workload, first)
        evaluated = _every(
            self._cycle,
            workload,
            submit=lambda number: self._submit(workload, number, claims, uid=f"{workload.owner}/{number}"),
            simulate=self._simulate,
        )
        return first, evaluated

    def _submit(
        self, workload: Workload, number: int, claims: Sequence[dict[str, Any]], *, uid: str = ""
    ) -> SubmittedPod:
        manifests = manifests_of(workload, number, claims, namespace=self._namespace)
        try:
            return read_pod(self._state, manifests, self._admit, namespace=self._namespace, uid=uid)
        except UnreadableManifestError as error:
            raise CommandError(str(error)) from None
        except UnknownSchedulerError as error:
            namespace = manifests.pod["metadata"].get("namespace", self._namespace)
            raise CommandError(other_scheduler_message(str(error), namespace)) from None

    def _simulate(self, submitted: SubmittedPod, rehearsed: Rehearsed = None) -> Simulation:
        simulated = finish(
            simulation.simulate(
                self._cycle, submitted, evictions=self._evictions, rehearsed=rehearsed, cards_of=self._cards_of
            )
        )
        if simulated.explanation is None:
            return simulated
        explained = _with_blocker(self._cycle, simulated.explanation)
        explained = qualified(explained, self.alive, is_created=False)
        return msgspec.structs.replace(simulated, explanation=explained)


def evictions(state: ClusterState, chosen: Rules, budgets: DisruptionBudgets) -> Evictions:
    """Return what decides about evictions in a cluster."""
    chooser = Chooser(state, Eligibility(state, budgets=budgets, settings=chosen.preemption, unix=time.time))
    if not chosen.moves_pods:
        return Evictions(chooser)
    movable = Movable(
        state, budgets=budgets, settings=chosen.consolidation, preemption=chosen.preemption, unix=time.time
    )
    return Evictions(chooser, Planner(state, movable))


def _eligible(state: ClusterState, submitted: SubmittedPod) -> list[str]:
    """Return the nodes on which a DaemonSet has a pod; `submitted` is one that is not tied to a node yet."""
    filtered = finish(state.node_filter.filter(submitted.pod))
    waiting = (name for name, each in filtered.rejections.items() if each.code not in _NOT_ELIGIBLE)
    return sorted((*filtered.fitting, *waiting))


def _every(cycle: SchedulingCycle, workload: Workload, *, submit: _Submit, simulate: Simulate) -> Replicas:
    """Evaluate all pods in order, and keep those that fit reserved in this process's copy of the scheduler's state.

    The first pod that does not fit ends the evaluation, because the rest are alike, or come only after it. The pods of
    a DaemonSet differ, and those with claims of their own do. Pods that complete a gang are evaluated together.
    """
    nodes: Counter[str] = Counter()
    unfit: Simulation | None = None
    with suppress(NotAdmittedError):
        of_gang = together(cycle, workload, submit=submit, simulate=simulate)
        if of_gang is not None:
            return of_gang
    for number in range(workload.total):
        try:
            submitted = submit(number)
        except NotAdmittedError as error:
            unfit = unfit or simulation.not_admitted(str(error))
            break
        decision = finish(cycle.schedule(submitted.pod))
        if isinstance(decision, Scheduled):
            nodes[decision.node] += 1
            cycle.state.bindings.set_pod(submitted.pod)  # the cards of its application are in use for the next pods
            continue
        unfit = unfit or simulate(submitted, None)
        differ = workload.make_on is not None or any(workload.make_claims(number))
        if workload.is_ordered or not differ:
            break
    note = workload.note or (_ORDERED if unfit is not None and workload.is_ordered else "")
    return Replicas(workload.total, workload.total, nodes.total(), dict(sorted(nodes.items())), note, unfit)


def _with_blocker(cycle: SchedulingCycle, explained: Explanation) -> Explanation:
    """Add the GpuQueue of a higher tier that the pod waits for, found by a dry run of the pods that come first."""
    queue = explained.gpu_queue
    if queue is None or explained.outcome not in _WAITING:
        return explained
    key = QueueKey.of_annotation(queue.name)
    blocker = waits_for(cycle.state, key, _demands(cycle, above=queue.priority))
    return msgspec.structs.replace(explained, gpu_queue=msgspec.structs.replace(queue, waits_for=blocker))


def _demands(cycle: SchedulingCycle, *, above: int) -> dict[QueueKey, WaitingDemand]:
    """Return what the pods of higher tiers require that wait for cards or nodes to become free."""
    queues = cycle.state.fair_share.queues
    found: dict[QueueKey, WaitingDemand] = {}
    first = (entry for entry in cycle.state.queue.in_order() if queues.spec(entry.key).priority > above)
    for entry in islice(first, _EVALUATED):
        result = finish(cycle.dry_run(entry.pod)).result
        if isinstance(result, Unschedulable) and result.demand is not None:
            found[entry.key] = WaitingDemand(result.demand, 1)
    return found
