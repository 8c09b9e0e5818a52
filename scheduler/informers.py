"""The informers of a term, one for each kind that the scheduler watches."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from cluster.api import Api
from cluster.disruption_budget import PodDisruptionBudget
from cluster.dra import DeviceClass
from cluster.gpu_node_status import GpuNodeStatus
from cluster.informer import HasMeta, Informer
from cluster.lease import Lease
from cluster.resource import POD_DISRUPTION_BUDGETS, Resource
from scheduler.binding.node_locks import NodeLocks
from scheduler.binding.volume_binder import VolumeBinder
from scheduler.expansion.expander import Expander
from scheduler.objects import Node, Pod
from scheduler.preemption.disruption_budgets import DisruptionBudgets
from scheduler.resize.resizer import Resizer
from scheduler.state import kinds
from scheduler.state.cluster_state import ClusterState
from scheduler.state.kinds import StateKind
from scheduler.volumes.bindings import ClaimKey
from scheduler.volumes.objects import Claim, PersistentVolume

Item = TypeVar("Item", bound=HasMeta)


class Informers:
    """One informer for each kind that scheduling depends on."""

    def __init__(self, api: Api, watched: Iterable[StateKind[Any]], *, preempts: bool, relist_seconds: float) -> None:
        """Watch kinds of `watched`, and PodDisruptionBudgets if the scheduler `preempts` pods.

        All objects are listed again every `relist_seconds`.
        """
        self._kinds = tuple(watched)
        self._of_state: dict[Resource, Informer[Any]] = {
            kind.resource: Informer(
                api,
                kind.resource,
                kind.decoded,
                namespace=kind.namespace,
                relist_seconds=relist_seconds,
                is_optional=kind.is_optional,
            )
            for kind in self._kinds
        }
        self._budgets = (
            Informer(api, POD_DISRUPTION_BUDGETS, PodDisruptionBudget, relist_seconds=relist_seconds)
            if preempts
            else None
        )

    def __iter__(self) -> Iterator[Informer[Any]]:
        """Iterate over all informers."""
        if self._budgets is not None:
            yield self._budgets
        yield from self._of_state.values()

    # ---- objects ---------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> Informer[Node]:
        """The informer of nodes."""
        return self._of(kinds.NODES)

    @property
    def statuses(self) -> Informer[GpuNodeStatus]:
        """The informer of the reports of agents."""
        return self._of(kinds.STATUSES)

    @property
    def leases(self) -> Informer[Lease]:
        """The informer of the Leases of cards and agents."""
        return self._of(kinds.LEASES)

    @property
    def device_classes(self) -> Informer[DeviceClass]:
        """The informer of DeviceClasses."""
        return self._of(kinds.DEVICE_CLASSES)

    @property
    def pods(self) -> Informer[Pod]:
        """The informer of pods."""
        return self._of(kinds.PODS)

    @property
    def has_storage(self) -> bool:
        """Whether storage is watched; in extender mode kube-scheduler evaluates and binds the volumes of pods."""
        return kinds.VOLUMES.resource in self._of_state

    def find_volume_claim(self, key: ClaimKey) -> Claim | None:
        """Return a PersistentVolumeClaim."""
        return self._of(kinds.VOLUME_CLAIMS).get(key.name, key.namespace)

    def find_volume(self, name: str) -> PersistentVolume | None:
        """Return a PersistentVolume."""
        return self._of(kinds.VOLUMES).get(name)

    def _of(self, kind: StateKind[Item]) -> Informer[Item]:
        return self._of_state[kind.resource]

    # ---- handlers --------------------------------------------------------------------------------------------------

    def feed_state(self, state: ClusterState) -> None:
        """Apply every change to `state` from now on."""
        for kind in self._kinds:
            on_upsert, on_delete = kind.handlers(state)
            self._of(kind).add_handlers(on_upsert=on_upsert, on_delete=on_delete)

    def feed_budgets(self, budgets: DisruptionBudgets) -> None:
        """Apply every change to `budgets` from now on."""
        if self._budgets is not None:
            self._budgets.add_handlers(on_upsert=budgets.set, on_delete=budgets.drop)

    def feed_locks(self, locks: NodeLocks) -> None:
        """Apply changes of nodes and pods to `locks` from now on."""
        self.nodes.add_handlers(on_upsert=locks.set_node, on_delete=locks.drop_node)
        self.pods.add_handlers(on_upsert=locks.set_pod, on_delete=locks.set_pod)

    def feed_expander(self, expander: Expander) -> None:
        """Show `expander` the pods by which it asks for nodes, and notify it of nodes, which the state counts first."""
        self.pods.add_handlers(on_upsert=expander.placeholders.set_pod, on_delete=expander.placeholders.drop_pod)
        self.nodes.add_handlers(on_upsert=expander.placeholders.set_node, on_delete=lambda _: None)
        self.statuses.add_handlers(on_upsert=expander.placeholders.set_node, on_delete=lambda _: None)

    def feed_resizer(self, resizer: Resizer) -> None:
        """Notify `resizer` of changes of pods, which the state counts first."""
        self.pods.add_handlers(on_upsert=resizer.set_pod, on_delete=resizer.drop_pod)

    def feed_volume_binder(self, binder: VolumeBinder) -> None:
        """Notify `binder` of changes, so that it looks again at the pods that wait for them."""
        if self.has_storage:
            self._of(kinds.VOLUME_CLAIMS).add_handlers(on_upsert=binder.set_claim, on_delete=binder.set_claim)
            self._of(kinds.VOLUMES).add_handlers(on_upsert=binder.set_volume, on_delete=binder.set_volume)
        self.nodes.add_handlers(on_upsert=lambda *_: None, on_delete=binder.drop_node)
        self.pods.add_handlers(on_upsert=binder.set_pod, on_delete=binder.set_pod)
