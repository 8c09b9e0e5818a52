"""Whether a running pod may have another size: one synchronous step, which also charges it, except in a dry run."""

from collections.abc import Mapping

import msgspec

from allocation import adjustment, quota
from allocation.adjustment import Adjustment, Quotas
from allocation.allocation import Allocation, charges
from allocation.constraints import read_isolation
from allocation.errors import AllocationError
from allocation.names import ALLOCATION, HAMI_BIND_PHASE
from allocation.request import ContainerRequest, PodRequest, read_request
from allocation.wire import environment, record, resize_record
from allocation.wire.resize_record import Wish
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState


class Resize(msgspec.Struct, frozen=True):
    """Another size of a pod.

    Attributes:
        before: the most that its containers may use until then.
        after: the allocation with the new size.
        request: its containers, by their kinds.
        adjustment: what changes; the larger of both sizes is charged.
    """

    before: Allocation
    after: Allocation
    request: PodRequest
    adjustment: Adjustment


def evaluate(
    state: ClusterState, pod: Pod, annotations: Mapping[str, str], wish: Wish, *, dry_run: bool = False
) -> Resize | None:
    """Charge a running pod with `annotations` for the size of a wish as well; None if it has that size.

    `state` must count the pod as the annotations say.

    Raises:
        ScalingQuotaExceededError: its cards, its namespace or its queue have too little left.
        AllocationError: the size of this pod cannot change, for the reason that the message names.
    """
    _check_pod(state, pod, annotations)
    allocation = record.of_annotations(annotations)
    if allocation is None:
        raise AllocationError(f"it has no annotation {ALLOCATION}: its cards are not of Tranche")
    after = resize_record.wished(allocation, wish, state.settings)
    if after == allocation:
        return None
    _check_cards(state, pod, allocation)
    resized = resize_record.resized_of(annotations)
    before = allocation if resized is None else resize_record.usable(allocation, resized)
    request = msgspec.structs.replace(read_request(pod.spec, state.settings), isolation=read_isolation(annotations))
    most = charges(resize_record.ceiling(before, after), request)
    key = state.fair_share.use.owner(pod.uid) or state.fair_share.key(pod)
    limits, requests = state.quotas.headrooms(pod.metadata.namespace)
    sized = _sized(request, after)
    if _grows(allocation, after):
        state.fair_share.queues.check(key, pod.metadata.namespace)
    whole = state.quotas.whole_headroom(pod.metadata.namespace).within(state.fair_share.whole_headroom(key))
    if why := quota.unstated(sized, whole.limits):
        raise AllocationError(why)
    adjusted = adjustment.adjust(
        state.ledger,
        pod.uid,
        most,
        request=sized,
        settings=state.settings,
        quotas=Quotas(
            state.quotas.specs(pod.metadata.namespace), requests.within(state.fair_share.headroom(key)), limits
        ),
        dry_run=dry_run,
    )
    return Resize(before, after, request, adjusted)


def _check_pod(state: ClusterState, pod: Pod, annotations: Mapping[str, str]) -> None:
    """Refuse pods whose size something else decides."""
    node = pod.spec.node_name
    if not node or pod.finished:
        raise AllocationError("it does not run: delete it, and create it with the size that you want")
    if not state.is_ours(pod):
        raise AllocationError(f"its schedulerName is {pod.spec.scheduler_name}, so its size is not Tranche's to change")
    if state.plugin_nodes.is_hami(node) or HAMI_BIND_PHASE in pod.metadata.annotations:
        raise AllocationError(f"HAMi's device plugin serves node {node}, and gives each pod its size once")
    if state.deliveries.of(node) == "nvfractions" or environment.has_fractions(annotations):
        raise AllocationError(
            "kai-gpu-fractioning limits it by the annotations that it had when its sandbox was created: delete it, and"
            " create it with the size that you want"
        )
    gang = state.gangs.of(pod.uid)
    if gang is not None and not gang.is_satisfied:
        raise AllocationError(f"its gang {gang.key} waits for nodes: wait until it has them")
    if state.bindings.concern(pod.metadata.labels, pod.metadata.namespace):
        raise AllocationError("GPUBindings say what its application has of each card: change these")


def _check_cards(state: ClusterState, pod: Pod, allocation: Allocation) -> None:
    """Refuse cards whose size is fixed."""
    if allocation.claim is not None:
        raise AllocationError(
            f"GpuClaim {allocation.claim.name} says what it has of each card, and never changes: create another claim"
        )
    for uuid in {share.uuid for shares in allocation.containers.values() for share in shares if share.parent}:
        raise AllocationError(f"{uuid} is a MIG instance, whose size is fixed: request another profile")
    if state.ledger.reservation(pod.uid) is None:
        raise AllocationError("its cards are not counted: its node reports why, see kubectl gpu explain")


def _grows(before: Allocation, after: Allocation) -> bool:
    return resize_record.ceiling(before, after) != before


def _sized(request: PodRequest, allocation: Allocation) -> PodRequest:
    """Return a request for the sizes of an allocation, which quotas of single pods limit."""
    containers = (_resized(each, allocation) for each in request.containers)
    return PodRequest(tuple(containers))


def _resized(container: ContainerRequest, allocation: Allocation) -> ContainerRequest:
    shares = allocation.containers.get(container.name)
    if not shares:
        return container
    memory, cores = max(each.memory_mib for each in shares), max(each.cores for each in shares)
    if container.tflops:
        cores = container.cores
    return msgspec.structs.replace(
        container,
        memory_mib=memory,
        memory_percent=0,
        cores=cores,
        memory_limit_mib=max(each.memory_limit_mib for each in shares),
        cores_limit=max(each.cores_limit for each in shares),
    )
