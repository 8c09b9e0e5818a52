"""What a pod that has a node holds of its cards, read from the pod alone: the truth that a restart counts."""

from collections.abc import Mapping

from allocation import hami, mig_record, names, record
from allocation.allocation import Allocation, Charge, charges
from allocation.errors import AllocationError, InvalidFieldError
from allocation.pod import Containers
from allocation.request import PodRequest, read_request
from allocation.settings import AllocationSettings


def of_pod(
    spec: Containers, annotations: Mapping[str, str], *, node: str, settings: AllocationSettings
) -> tuple[Allocation, tuple[Charge, ...]] | None:
    """Answer what a pod on `node` was given and what that costs each card; None for one that asks for no GPU.

    Our annotation counts, else HAMi's, whose pods run on while a cluster moves over. The request only tells how long
    each container lives; where it cannot be read every container counts as one that lives as long as the pod: too much
    rather than too little.

    Raises:
        AllocationError: the allocation is missing, unreadable, or for another node, so the pod uses cards unknown.
    """
    problem = ""
    try:
        request = read_request(spec, settings)
    except InvalidFieldError as error:
        request, problem = PodRequest(()), f": {error}"
    allocation = record.of_annotations(annotations)
    if allocation is None and names.HAMI_ALLOCATED in annotations:
        allocation = hami.read_allocation(annotations[names.HAMI_ALLOCATED], request, node=node)
        if names.HAMI_MIG in annotations:
            allocation = mig_record.located(allocation, request, mig_record.decode(annotations[names.HAMI_MIG]))
    if allocation is None:
        if request or problem:
            raise AllocationError(f"it asks for a GPU and has no allocation{problem}")
        return None
    if request and not allocation.containers:
        raise AllocationError("it asks for a GPU and its allocation is empty")
    if allocation.node != node:
        raise AllocationError(f"its allocation is for node {allocation.node}")
    return allocation, charges(allocation, request)
