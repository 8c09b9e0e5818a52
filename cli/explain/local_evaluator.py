"""Evaluates pods with the scheduler's own functions, in this process. They compute with numpy."""

import time
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import msgspec

from allocation.steps import finish
from cli.errors import CommandError
from cli.explain import replica_evaluation, replicas, tiers
from cli.explain.evaluator import SimulatedWorkload, manifests_of
from cli.installation.rules import Rules
from cli.liveness.part import Liveness
from cli.liveness.wording import qualified
from cli.workloads.workload import Workload
from cluster.manifest import NotAdmittedError, UnreadableManifestError
from scheduler.api import explanation, simulation
from scheduler.api.explanation_types import Explanation
from scheduler.api.manifest_pod import SubmittedPod, UnknownSchedulerError, other_scheduler_message, read_pod
from scheduler.api.simulation_types import Simulation
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.objects import Pod
from scheduler.preemption.choice import Chooser
from scheduler.preemption.disruption_budgets import DisruptionBudgets
from scheduler.preemption.eligibility import Eligibility
from scheduler.state.cluster_state import ClusterState
from webhook import dry_run


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
    ) -> None:
        """Use `namespace` for manifests that name none."""
        self.alive = alive
        self._state = state
        self._cycle = SchedulingCycle(state, weights=chosen.weights)
        self._chooser = Chooser(state, Eligibility(state, budgets=budgets, settings=chosen.preemption, unix=time.time))
        self._admit = partial(dry_run.dry_run, allocation=chosen.allocation, settings=chosen.webhook)
        self._namespace = namespace
        self._cards_of = cards_of

    def explain(self, pod: Pod) -> Explanation:
        """See Evaluator."""
        explained = finish(explanation.explain(self._cycle, pod, chooser=self._chooser, cards_of=self._cards_of))
        explained = msgspec.structs.replace(explained, queue=None)  # only the scheduler knows its queue
        explained = tiers.with_blocker(self._cycle, explained)
        return qualified(explained, self.alive, is_created=True)

    def simulate(self, workload: Workload, *, every: bool, claims: Sequence[dict[str, Any]] = ()) -> SimulatedWorkload:
        """See Evaluator; with `every`, pods that fit stay reserved for the workloads that are simulated next."""
        try:
            submitted = self._submit(workload, 0, claims)
            if workload.make_on is not None:
                workload = workload.on(replica_evaluation.eligible(self._state, submitted))
                submitted = self._submit(workload, 0, claims) if workload.total else submitted
        except NotAdmittedError as error:
            first = simulation.not_admitted(str(error))
            return first, replicas.only_first(workload, first)
        first = self._simulate(submitted)
        if not every:
            return first, replicas.only_first(workload, first)
        evaluated = replica_evaluation.every(
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

    def _simulate(self, submitted: SubmittedPod) -> Simulation:
        simulated = finish(simulation.simulate(self._cycle, submitted, chooser=self._chooser, cards_of=self._cards_of))
        if simulated.explanation is None:
            return simulated
        explained = tiers.with_blocker(self._cycle, simulated.explanation)
        explained = qualified(explained, self.alive, is_created=False)
        return msgspec.structs.replace(simulated, explanation=explained)
