"""The spec of a pod, of which nothing is kept beyond the limits."""

import sys
from collections.abc import Mapping

import msgspec

from allocation.pod import Resources
from scheduler.pod_spec.constraints import Affinity, SpreadConstraint, Toleration
from scheduler.pod_spec.containers import PodContainer
from scheduler.pod_spec.limits import excess_of_spec, excess_of_volumes
from scheduler.pod_spec.shared_values import shared, shared_tuple
from scheduler.pod_spec.volumes import Present, Volume

PREEMPTS = "PreemptLowerPriority"
"""The preemption policy of pods and PriorityClasses that state none."""

_GATES = 8
"""The scheduling gates of a pod whose names are kept; the API server does not limit their number."""


class SchedulingGate(msgspec.Struct, gc=False):
    """What keeps a pod from being scheduled until a user or a controller removes it."""

    name: str = ""


class SchedulingGroup(msgspec.Struct, rename="camel", gc=False):
    """The group with whose pods a pod gets a node: the name of a PodGroup; empty for anything else."""

    pod_group_name: str = ""


class PodSpec(msgspec.Struct, rename="camel", gc=False):
    """The spec of a pod; `excess` says which part of it exceeds a limit, and is therefore not kept."""

    containers: tuple[PodContainer, ...] = ()
    init_containers: tuple[PodContainer, ...] = ()
    node_name: str = ""
    scheduler_name: str = ""
    priority: int = 0
    preemption_policy: str = PREEMPTS
    termination_grace_period_seconds: int = 30
    node_selector: Mapping[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    overhead: Mapping[str, str] = {}
    resources: Resources | None = None
    topology_spread_constraints: tuple[SpreadConstraint, ...] = ()
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[Present, ...] = ()
    scheduling_group: SchedulingGroup | None = None
    workload_ref: Present | None = None
    excess: str = ""

    def __post_init__(self) -> None:
        """Drop the fields of a spec that exceeds a limit, which `excess` names; share what many pods have.

        Most pods have only the tolerations that admission adds. A pod that has a node keeps its containers, because
        their requests and host ports count; its requirements of nodes and its anti-affinity are dropped. Volumes that
        every node can mount, which nearly every pod has, are dropped as well, and all but one of the claims of
        devices, because only their presence matters.
        """
        self.excess = excess_of_spec(
            (*self.containers, *self.init_containers),
            volumes=len(self.volumes),
            tolerations=len(self.tolerations),
            node_selector=self.node_selector,
            affinity=self.affinity,
            spread=self.topology_spread_constraints,
        )
        if too_long := excess_of_volumes(self.volumes):
            self.excess, self.volumes = too_long, ()
        if len(self.scheduling_gates) > _GATES:
            self.scheduling_gates = (*self.scheduling_gates[:_GATES], SchedulingGate("…"))
        if self.volumes:
            self.volumes = tuple(volume for volume in self.volumes if volume.restricts_nodes)
        self.resource_claims = self.resource_claims[:1]
        if self.excess:
            self.node_selector, self.tolerations, self.topology_spread_constraints = {}, (), ()
            self.affinity = None
            if not self.node_name:
                self.containers, self.init_containers, self.volumes = (), (), ()
        self.tolerations = shared_tuple(self.tolerations)
        self.node_selector, self.overhead = shared(self.node_selector), shared(self.overhead)
        self.node_name, self.scheduler_name = sys.intern(self.node_name), sys.intern(self.scheduler_name)

    @property
    def gates(self) -> str:
        """The names of the gates, for messages."""
        return ", ".join(each.name for each in self.scheduling_gates)
