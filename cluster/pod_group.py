"""PodGroups, those of the coscheduling plugin and those of Kubernetes: how many pods of a gang get nodes together.

Nothing here ever writes one.

Sources: github.com/kubernetes-sigs/scheduler-plugins, apis/scheduling/v1alpha1; k8s.io/api 0.37, scheduling/v1beta1.
"""

import msgspec

from cluster.metadata import ObjectMeta


class PodGroupSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """What is read of a PodGroup's spec; `minResources` is not, because whether the pods fit is decided exactly.

    Attributes:
        min_member: the least number of pods.
        schedule_timeout_seconds: for how long they may wait; None for ever.
    """

    min_member: int = 1
    schedule_timeout_seconds: int | None = None


class PodGroup(msgspec.Struct, gc=False):
    """A PodGroup of the coscheduling plugin, which a pod names by a label."""

    metadata: ObjectMeta
    spec: PodGroupSpec = PodGroupSpec()


class GangPolicy(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The least number of pods that get nodes together."""

    min_count: int = 1


class SchedulingPolicy(msgspec.Struct, frozen=True, gc=False):
    """All or nothing by `gang`; without it, each pod by itself."""

    gang: GangPolicy | None = None


class TopologyConstraint(msgspec.Struct, frozen=True, gc=False):
    """The key of a node label whose value all nodes of a group share."""

    key: str = ""


class SchedulingConstraints(msgspec.Struct, frozen=True, gc=False):
    """Where the pods of a group may be; the API allows one constraint."""

    topology: tuple[TopologyConstraint, ...] = ()


class KubernetesPodGroupSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """What is read of the spec of a PodGroup of Kubernetes.

    Attributes:
        scheduling_policy: whether its pods get nodes together.
        scheduling_constraints: where; None for anywhere.
        parent_composite_pod_group_name: the group of groups that it belongs to; None for none.
    """

    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    parent_composite_pod_group_name: str | None = None


class KubernetesPodGroup(msgspec.Struct, gc=False):
    """A PodGroup of Kubernetes itself, which a pod names by its `spec.schedulingGroup`."""

    metadata: ObjectMeta
    spec: KubernetesPodGroupSpec = KubernetesPodGroupSpec()
