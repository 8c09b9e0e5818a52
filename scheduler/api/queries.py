"""The queries about the whole cluster that a leading scheduler supports. They read its state and change nothing."""

from collections.abc import Callable, Collection

import msgspec

from allocation.steps import Steps
from allocation.wire.resize_record import Wish
from cluster.informer import Informer
from cluster.manifest import NotAdmittedError
from scheduler.api import (
    adjustment,
    allocation_view,
    capacity,
    capacity_shapes,
    capacity_view,
    explanation,
    gang_explanation,
    gang_view,
    manifest_pod,
    queue_view,
    quota_view,
    simulation,
    usage_view,
)
from scheduler.api.adjustment_types import AdjustmentAnswer
from scheduler.api.allocation_view import AllocationView
from scheduler.api.capacity_shapes import Shape
from scheduler.api.capacity_types import CapacityView
from scheduler.api.evictions import Evictions
from scheduler.api.explanation_types import Explanation
from scheduler.api.gang_explanation import Rehearsed
from scheduler.api.gang_types import GangsView
from scheduler.api.manifest_pod import Admit
from scheduler.api.queue_types import QueuesView
from scheduler.api.quota_types import QuotasView
from scheduler.api.request_body import Manifests
from scheduler.api.simulation_types import Simulation
from scheduler.api.usage_types import UsageView
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.measurements.use_of_shares import UseOfShares
from scheduler.objects import Pod


class Queries(msgspec.Struct, frozen=True):
    """The queries of one term.

    Attributes:
        cycle: the scheduling cycle, with the state.
        evictions: what evicts pods.
        pods: all pods.
        use: what pods really use of their cards; None if it is not read.
        waits_for: returns why a pod of kube-scheduler waits whatever the nodes have: for others of its gang, or for a
            kube-scheduler that runs; or an empty string.
        expansion: returns what is done to bring a node for a pod, given by UID, or an empty string.
    """

    cycle: SchedulingCycle
    evictions: Evictions
    pods: Informer[Pod]
    waits_for: Callable[[Pod], str] = lambda _: ""
    use: UseOfShares | None = None
    expansion: Callable[[str], str] = lambda _: ""

    def explain(
        self, namespace: str, name: str, *, rehearsed: Rehearsed = None, cards_of: Collection[str] | None = None
    ) -> Steps[Explanation | None]:
        """Return why a pod runs on its node or is pending, or None if the pod does not exist.

        `rehearsed` is what `rehearse` has returned. Run it while `ClusterState.inquiry` is held.
        """
        pod = self.pods.get(name, namespace)
        if pod is None:
            return None
        why = self.waits_for(pod)
        if why:
            return explanation.of_external(self.cycle.state, pod, why)
        explained = yield from explanation.explain(
            self.cycle, pod, evictions=self.evictions, rehearsed=rehearsed, cards_of=cards_of
        )
        note = self.expansion(pod.uid) if explained.outcome == "waits" else ""
        return msgspec.structs.replace(explained, hints=(*explained.hints, note)) if note else explained

    def is_rehearsed(self, namespace: str, name: str) -> bool:
        """Whether the explanation of a pod needs `rehearse`."""
        pod = self.pods.get(name, namespace)
        return pod is not None and gang_explanation.is_rehearsed(self.cycle.state, pod)

    def rehearse(self, namespace: str, name: str) -> Steps[Rehearsed]:
        """Return what a decision about the gang of a pod would do. Run it within `ClusterState.alone`."""
        pod = self.pods.get(name, namespace)
        return (yield from gang_explanation.rehearse(self.cycle, pod)) if pod is not None else None

    def simulate(
        self, manifests: Manifests, admit: Admit, *, cards_of: Collection[str] | None = None
    ) -> Steps[Simulation]:
        """Return what would happen to a pod that was created now, together with its claims.

        Raises:
            UnreadableManifestError: the manifests are not a Pod and claims that it may use.
            UnknownSchedulerError: another scheduler would place the pod.
        """
        try:
            submitted = manifest_pod.read_pod(self.cycle.state, manifests, admit)
        except NotAdmittedError as error:
            return simulation.not_admitted(str(error))
        return (yield from simulation.simulate(self.cycle, submitted, evictions=self.evictions, cards_of=cards_of))

    def capacity(
        self,
        manifests: Manifests | None,
        admit: Admit,
        *,
        namespace: str,
        is_over: Callable[[], bool],
        within_namespace: bool = False,
    ) -> Steps[CapacityView]:
        """Return how many more pods like one fit, or of the standard shapes; at most until `is_over` returns True.

        With `within_namespace` the standard shapes are the slices of the pods of `namespace`, and what is stranded is
        left out. Run it within `ClusterState.alone`.

        Raises:
            UnreadableManifestError: the manifests are not a Pod and claims that it may use.
            UnknownSchedulerError: another scheduler would place the pod.
        """
        state = self.cycle.state
        if manifests is not None:
            shapes: tuple[Shape, ...] = (Shape(capacity_shapes.name_of(manifests), manifests),)
        else:
            shapes = yield from capacity_shapes.standard(state, namespace, own_only=within_namespace)
        return (
            yield from capacity_view.view(
                self.cycle,
                shapes,
                admit,
                namespace=namespace,
                most=capacity.MOST_COPIES,
                is_over=is_over,
                with_stranded=not within_namespace,
            )
        )

    def adjust(self, namespace: str, name: str, wish: Wish) -> AdjustmentAnswer | None:
        """Return whether a running pod may have another size, or None if it does not exist.

        Run it while `ClusterState.turn` is held.
        """
        pod = self.pods.get(name, namespace)
        return adjustment.answer(self.cycle.state, pod, wish) if pod is not None else None

    def allocation(self) -> AllocationView:
        """Return all cards, and the pods that use them."""
        return allocation_view.view(self.cycle.state.ledger, self.pods)

    def gangs(self, *, namespace: str = "", name: str = "", after: str = "") -> Steps[GangsView]:
        """Return the gangs after the one `after`, a page of them; see `scheduler.api.gang_view`.

        Run it while `ClusterState.turn` is held, or it may show a decision in progress.
        """
        state = self.cycle.state
        return gang_view.view(state, gang_view.published(state), namespace=namespace, name=name, after=after)

    def usage(self, namespace: str = "") -> Steps[UsageView]:
        """Return what the pods of a namespace really use of their cards, or all pods and processes."""
        return usage_view.view(self.use, self.cycle.state.ledger, self.pods, namespace=namespace)

    def queues(self) -> QueuesView:
        """Return the queues: what each has, is entitled to, and waits for."""
        return queue_view.view(self.cycle.state)

    def quotas(self) -> QuotasView:
        """Return the quotas: what is used of each limit, and what is left."""
        quotas = self.cycle.state.quotas
        return quota_view.view(
            quotas.gpu_quotas(), quotas.resource_quotas, use_of=quotas.use, settings=self.cycle.state.settings
        )
