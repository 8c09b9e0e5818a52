"""Has the scheduler evaluate pods, over its API for namespaces."""

from collections.abc import Sequence
from typing import Any

from cli.errors import CommandError
from cli.explain import replicas
from cli.explain.evaluator import SimulatedWorkload, manifests_of
from cli.kube.scheduler_api import SchedulerApi
from cli.liveness.part import Liveness
from cli.workloads.workload import Workload
from scheduler.api.explanation_types import Explanation
from scheduler.objects import Pod


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
        manifests = manifests_of(workload, 0, claims, namespace=self._namespace)
        metadata = manifests.pod.setdefault("metadata", {})
        namespace = str(metadata.setdefault("namespace", self._namespace))
        first = self._api.simulate(namespace, manifests, node=self._node)
        return first, replicas.only_first(workload, first)
