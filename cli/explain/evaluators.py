"""The choice of what evaluates pods for `explain` and `simulate`: the scheduler's functions here, or the scheduler.

The functions run here if numpy is installed and the user may read the whole cluster; otherwise the scheduler evaluates
the pods.
"""

import argparse
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from cli.errors import CommandError, MissingPackageError, MissingRightError
from cli.explain import addition as added
from cli.explain import replicas
from cli.explain.addition import ADDS_TO_A_COPY, Addition
from cli.explain.evaluator import Evaluator, SimulatedWorkload, manifests_of
from cli.installation import rules
from cli.kube import scheduler_version
from cli.kube.scheduler_api import SchedulerApi
from cli.kube.session import Session
from cli.liveness.installation_check import check_installation
from cli.liveness.liveness import Liveness, require_installation
from cli.workloads.workload import Workload
from scheduler.api.explanation_types import Explanation
from scheduler.objects import Pod


def choose(session: Session, arguments: argparse.Namespace) -> Evaluator:
    """Return the remote evaluator if a flag names a scheduler or the local one cannot work, else the local one.

    Raises:
        CommandError: Tranche is not installed, its configuration is wrong, or the API server cannot be reached.
    """
    addition = added.read(arguments.with_node) if arguments.command == "simulate" and arguments.with_node else None
    remote = partial(RemoteEvaluator, namespace=session.namespace, node=arguments.node, addition=addition)
    if arguments.scheduler_url:
        return remote(SchedulerApi(session.access, url=arguments.scheduler_url))
    try:
        from cli.explain import added_nodes, local_evaluator, scheduler_state  # noqa: PLC0415 -- they need numpy
    except ModuleNotFoundError as error:
        return remote(SchedulerApi(session.access, instead=MissingPackageError(error)))
    chosen = rules.read(arguments.config, session.client)
    try:
        state = scheduler_state.read(session, chosen)
        if arguments.command == "simulate":
            scheduler_state.read_priority_classes(session, state)
        budgets = scheduler_state.read_budgets(session)
    except MissingRightError as error:
        return remote(SchedulerApi(session.access, instead=error))
    chosen.note_gaps()
    alive = check_installation(session.client, chosen)
    require_installation(alive)
    scheduler_version.warn_of_skew(session.client)
    if addition is not None:
        added_nodes.add(session, state, addition, groups=chosen.node_groups)
    return local_evaluator.LocalEvaluator(
        state,
        chosen,
        alive,
        budgets=budgets,
        namespace=session.namespace,
        cards_of=_cards_of(arguments),
        pods_of=partial(scheduler_state.read_pods, session),
    )


def _cards_of(arguments: argparse.Namespace) -> Collection[str] | None:
    """Return the nodes whose cards are shown, or None for all nodes, which only the structured formats show."""
    if arguments.node:
        return (arguments.node,)
    return None if arguments.output in ("json", "yaml") else ()


class RemoteEvaluator:
    """Has the scheduler evaluate pods, for users who may not read the whole cluster."""

    alive: Liveness | None = None

    def __init__(self, api: SchedulerApi, *, namespace: str, node: str, addition: Addition | None = None) -> None:
        """Use `namespace` for manifests that name none.

        Raises:
            CommandError: there is an `addition`, which only a copy of the cluster's state can have.
        """
        if addition is not None:
            raise CommandError(ADDS_TO_A_COPY)
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
        manifests = manifests_of(workload, 0, claims, namespace=self._namespace)
        metadata = manifests.pod.setdefault("metadata", {})
        namespace = str(metadata.setdefault("namespace", self._namespace))
        first = self._api.simulate(namespace, manifests, node=self._node)
        return first, replicas.only_first(workload, first)
