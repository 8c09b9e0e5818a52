"""The PodGroup object of the coscheduling plugin: how many pods of a gang have to get nodes together.

Source: github.com/kubernetes-sigs/scheduler-plugins, apis/scheduling/v1alpha1.
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
    """A PodGroup; nothing here ever writes one."""

    metadata: ObjectMeta
    spec: PodGroupSpec = PodGroupSpec()
