"""What evaluates pods for `explain` and `simulate`: the scheduler's functions here, or the scheduler itself.

The functions run here if the user may read the whole cluster; otherwise the scheduler is asked.
"""

import argparse
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from allocation.steps import finish
from cli.errors import CommandError, MissingRightError
from cli.explain import replicas, scheduler_state
from cli.explain.replicas import Replicas
from cli.installation import rules
from cli.installation.rules import Rules
from cli.kube.scheduler_api import SchedulerApi
from cli.kube.session import Session
from cli.liveness.installation_check import check_installation
from cli.liveness.part import Liveness
from cli.liveness.wording import qualified, require_installation
from cli.workloads.claims import gpu_claim, mounted
from cli.workloads.workload import Workload
from cluster.manifest import NotAdmittedError, UnreadableManifestError
from scheduler.api import explanation, simulation
from scheduler.api.explanation_types import Explanation
from scheduler.api.manifest_pod import SubmittedPod, UnknownSchedulerError, other_scheduler_message, read_pod
from scheduler.api.request_body import Manifests
from scheduler.api.simulation_types import Simulation
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from webhook import dry_run

SimulatedWorkload = tuple[Simulation, Replicas]
"""The simulation of a workload's first pod, and a summary of the pods that were evaluated."""


class Evaluator(Protocol):
    """Evaluates pods; the methods raise CommandError on failure."""

    @property
    def alive(self) -> Liveness | None:
        """Which parts of the installation work, or None if the scheduler is asked, which shows that it works."""

    def explain(self, pod: Pod) -> Explanation:
        """Return where an existing pod is or would go, or why it waits."""

    def simulate(self, workload: Workload, *, every: bool, claims: Sequence[dict[str, Any]] = ()) -> SimulatedWorkload:
        """Return what would happen to the first pod of a workload, or to `every` pod.

        The `claims` are created together with it if its pods mount or name them, in addition to its own.
        """


class LocalEvaluator:
    """Evaluates pods in this process, over what the API server shows."""

    def __init__(
        self, state: ClusterState, chosen: Rules, alive: Liveness, *, namespace: str, cards_of: Collection[str] | None
    ) -> None:
        """Use `namespace` for manifests that name none."""
        self.alive = alive
        self._state = state
        self._cycle = SchedulingCycle(state, weights=chosen.weights)
        self._admit = partial(dry_run.dry_run, allocation=chosen.allocation, settings=chosen.webhook)
        self._namespace = namespace
        self._cards_of = cards_of

    def explain(self, pod: Pod) -> Explanation:
        """See Evaluator."""
        explained = finish(explanation.explain(self._cycle, pod, cards_of=self._cards_of))
        explained = msgspec.structs.replace(explained, queue=None)  # only the scheduler knows its queue
        return qualified(explained, self.alive, is_created=True)

    def simulate(self, workload: Workload, *, every: bool, claims: Sequence[dict[str, Any]] = ()) -> SimulatedWorkload:
        """See Evaluator; with `every`, pods that fit stay reserved for the workloads that are simulated next."""
        try:
            submitted = self._submit(workload, 0, claims)
            if workload.make_on is not None:
                workload = workload.on(replicas.eligible(self._state, submitted))
                submitted = self._submit(workload, 0, claims) if workload.total else submitted
        except NotAdmittedError as error:
            first = simulation.not_admitted(str(error))
            return first, replicas.only_first(workload, first)
        first = self._simulate(submitted)
        if not every:
            return first, replicas.only_first(workload, first)
        evaluated = replicas.every(
            self._cycle,
            workload,
            submit=lambda number: self._submit(workload, number, claims, uid=f"{workload.owner}/{number}"),
            simulate=self._simulate,
        )
        return first, evaluated

    def _submit(
        self, workload: Workload, number: int, claims: Sequence[dict[str, Any]], *, uid: str = ""
    ) -> SubmittedPod:
        manifests = _manifests(workload, number, claims, namespace=self._namespace)
        try:
            return read_pod(self._state, manifests, self._admit, namespace=self._namespace, uid=uid)
        except UnreadableManifestError as error:
            raise CommandError(str(error)) from None
        except UnknownSchedulerError as error:
            namespace = manifests.pod["metadata"].get("namespace", self._namespace)
            raise CommandError(other_scheduler_message(str(error), namespace)) from None

    def _simulate(self, submitted: SubmittedPod) -> Simulation:
        simulated = finish(simulation.simulate(self._cycle, submitted, cards_of=self._cards_of))
        if simulated.explanation is None:
            return simulated
        explained = qualified(simulated.explanation, self.alive, is_created=False)
        return msgspec.structs.replace(simulated, explanation=explained)


class RemoteEvaluator:
    """Has the scheduler evaluate pods, for users who may not read the whole cluster."""

    alive: Liveness | None = None

    def __init__(self, api: SchedulerApi, *, namespace: str, node: str) -> None:
        """Use `namespace` for manifests that name none."""
        self._api = api
        self._namespace = namespace
        self._node = node

    def explain(self, pod: Pod) -> Explanation:
        """See Evaluator."""
        return self._api.explain(pod.metadata.namespace, pod.metadata.name, node=self._node)

    def simulate(self, workload: Workload, *, every: bool, claims: Sequence[dict[str, Any]] = ()) -> SimulatedWorkload:
        """See Evaluator; the first pod of a DaemonSet is not tied to a node."""
        if every:
            raise CommandError(
                "--all reserves cards for one pod after the other in a copy of the cluster's state, which requires"
                " ClusterRole tranche-viewer; omit --all"
            )
        manifests = _manifests(workload, 0, claims, namespace=self._namespace)
        metadata = manifests.pod.setdefault("metadata", {})
        namespace = str(metadata.setdefault("namespace", self._namespace))
        first = self._api.simulate(namespace, manifests, node=self._node)
        return first, replicas.only_first(workload, first)


def choose(session: Session, arguments: argparse.Namespace) -> Evaluator:
    """Return the remote evaluator if a flag names a scheduler or the cluster may not be read, else the local one.

    Raises:
        CommandError: Tranche is not installed, its configuration is wrong, or the API server cannot be reached.
    """
    remote = partial(RemoteEvaluator, namespace=session.namespace, node=arguments.node)
    if arguments.scheduler_url:
        return remote(SchedulerApi(session.access, url=arguments.scheduler_url))
    chosen = rules.read(arguments.config, session.client)
    try:
        state = scheduler_state.read(session, chosen)
    except MissingRightError as error:
        return remote(SchedulerApi(session.access, instead=error))
    chosen.note_gaps()
    alive = check_installation(session.client, chosen)
    require_installation(alive)
    return LocalEvaluator(state, chosen, alive, namespace=session.namespace, cards_of=_cards_of(arguments))


def _manifests(workload: Workload, number: int, claims: Sequence[dict[str, Any]], *, namespace: str) -> Manifests:
    """Return the pod with a number, and those of its workload's claims and of `claims` that it mounts or names."""
    pod = workload.make(number)
    volume_claims = mounted(pod, (*workload.make_claims(number), *claims), namespace=namespace)
    return Manifests(pod, volume_claims, gpu_claim(pod, claims, namespace=namespace))


def _cards_of(arguments: argparse.Namespace) -> Collection[str] | None:
    """Return the nodes whose cards are shown, or None for all nodes, which only the structured formats show."""
    if arguments.node:
        return (arguments.node,)
    return None if arguments.output in ("json", "yaml") else ()
