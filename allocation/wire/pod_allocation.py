"""Reads what a bound pod holds of its cards from the pod alone: the source of truth after a restart."""

from collections.abc import Mapping

from allocation import names
from allocation.allocation import Allocation, Charge, charges
from allocation.errors import AllocationError, InvalidFieldError
from allocation.pod import Containers
from allocation.request import PodRequest, read_request
from allocation.settings import AllocationSettings
from allocation.wire import hami, mig_record, record, resize_record


def read(
    spec: Containers,
    annotations: Mapping[str, str],
    *,
    node: str,
    settings: AllocationSettings,
    resized_to: Allocation | None = None,
) -> tuple[Allocation, tuple[Charge, ...]] | None:
    """Return the allocation of a pod on `node` and its charges; None if the pod requests no GPU.

    tranche's annotation takes precedence over HAMi's, whose pods run on while a cluster migrates. The request is only
    needed for how long each container lives. If it cannot be read, every container counts as long as the pod lives: too
    much rather than too little. A pod that is being resized is charged for what its containers may still use from
    before, and for the size `resized_to` that is about to be written, if they are more.

    Raises:
        AllocationError: the allocation is missing, unreadable or for another node, so the pod's cards are unknown.
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
            allocation = mig_record.with_instances(allocation, request, mig_record.decode(annotations[names.HAMI_MIG]))
    if allocation is None:
        if request or problem:
            raise AllocationError(f"it requests a GPU and has no allocation{problem}")
        return None
    if request and not allocation.containers:
        raise AllocationError("it requests a GPU and its allocation is empty")
    if allocation.node != node:
        raise AllocationError(f"its allocation is for node {allocation.node}")
    return allocation, charges(_usable(allocation, annotations, resized_to), request)


def _usable(allocation: Allocation, annotations: Mapping[str, str], resized_to: Allocation | None) -> Allocation:
    """Return the most that each container may use while a resize is in progress."""
    resized = resize_record.resized_of(annotations)
    most = allocation if resized is None else resize_record.usable(allocation, resized)
    return most if resized_to is None else resize_record.ceiling(most, resized_to)
