"""The GPU requirements of a pod: its resources, its annotations, and its static allocation if it has one."""

from collections.abc import Mapping

import msgspec

from allocation.allocation import Allocation
from allocation.constraints import Constraints, read_constraints
from allocation.errors import AllocationError
from allocation.limits import excess_of_gpu_containers
from allocation.pod import Containers
from allocation.request import PodRequest, read_request
from allocation.settings import AllocationSettings
from allocation.wire import record


class GpuRequirements(msgspec.Struct, frozen=True):
    """The GPU requirements of a pod.

    Attributes:
        request: the amounts, from its containers' resources.
        constraints: the constraints on cards and nodes, from its annotations.
        fixed: its static allocation, which admission accepts from trusted identities only.
    """

    request: PodRequest
    constraints: Constraints
    fixed: Allocation | None

    def __bool__(self) -> bool:
        """Whether the pod needs a card."""
        return bool(self.request) or self.fixed is not None


def read(spec: Containers, annotations: Mapping[str, str], settings: AllocationSettings) -> GpuRequirements:
    """Return the GPU requirements of a pod.

    Raises:
        AllocationError: a resource or an annotation is malformed or exceeds a limit.
    """
    request = read_request(spec, settings)
    if excess := excess_of_gpu_containers(len(request.gpu_containers)):
        raise AllocationError(excess)
    return GpuRequirements(
        request=request,
        constraints=read_constraints(annotations, settings),
        fixed=record.of_annotations(annotations),
    )
