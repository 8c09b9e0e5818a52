"""The allocation of a running pod, and the message for a pod whose allocation cannot be counted.

The state of the scheduler, its consistency check and `kubectl gpu` all use this module to count pods.
"""

from collections.abc import Mapping
from typing import Protocol

from allocation.allocation import Allocation, Charge
from allocation.errors import AllocationError
from allocation.pod import Containers
from allocation.settings import AllocationSettings
from allocation.wire import pod_allocation


class _Metadata(Protocol):
    @property
    def annotations(self) -> Mapping[str, str]: ...


class _Spec(Containers, Protocol):
    @property
    def node_name(self) -> str: ...


class AssignablePod(Protocol):
    """A pod that may have a node; the scheduler and `kubectl gpu` decode different fields of it."""

    @property
    def metadata(self) -> _Metadata:
        """Its annotations."""

    @property
    def spec(self) -> _Spec:
        """Its containers and its node."""

    @property
    def finished(self) -> bool:
        """Whether its containers will never run again."""


def running_allocation(
    pod: AssignablePod, settings: AllocationSettings, *, resized_to: Allocation | None = None
) -> tuple[Allocation, tuple[Charge, ...]] | None:
    """Return the allocation of `pod` and what it charges to each card.

    `resized_to` is the size of it that is about to be written; the larger one counts.
    Return None for a pod that holds nothing, because it has no node, is finished, or requests no GPU.

    Raises:
        AllocationError: the pod runs and requests a GPU, but its allocation is missing, unreadable or for another node.
            It may use any card of its node, which therefore takes no new GPU pods.
    """
    node = pod.spec.node_name
    if not node or pod.finished:
        return None
    annotations = pod.metadata.annotations
    return pod_allocation.read(pod.spec, annotations, node=node, settings=settings, resized_to=resized_to)


def uncounted_message(pod: AssignablePod, error: AllocationError) -> str:
    """Return the reason why the node of a pod that cannot be counted takes no new GPU pods."""
    return f"pod {pod} runs here uncounted: {error}"
