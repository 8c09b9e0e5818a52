"""Follows the allocations of the pods on this node: a resize changes them, and the container runtime does not know."""

import logging
from collections.abc import Callable

import msgspec

from allocation.allocation import Allocation
from allocation.errors import AllocationError
from allocation.names import ALLOCATION
from allocation.wire import record
from cluster.api import Api
from cluster.informer import Informer
from cluster.metadata import AnnotatedMeta
from cluster.resource import PODS

log = logging.getLogger(__name__)


class Pod(msgspec.Struct):
    """A pod, of which only the allocation is kept: users may write a quarter of a MiB into the other annotations."""

    metadata: AnnotatedMeta

    def __post_init__(self) -> None:
        """Forget all annotations but the allocation."""
        own = self.metadata.annotations
        self.metadata.annotations = {ALLOCATION: own[ALLOCATION]} if ALLOCATION in own else {}


def of_node(api: Api, node: str, on_change: Callable[[str, Allocation | None], None]) -> Informer[Pod]:
    """Return an informer that calls `on_change` with the UID of a pod and its allocation; None once it is gone."""

    def upsert(pod: Pod, _: Pod | None) -> None:
        try:
            allocation = record.of_annotations(pod.metadata.annotations)
        except AllocationError as error:
            log.warning("pod %s/%s: %s", pod.metadata.namespace, pod.metadata.name, error)
            return
        if allocation is not None:
            on_change(pod.metadata.uid, allocation)

    return Informer(
        api,
        PODS,
        Pod,
        on_upsert=upsert,
        on_delete=lambda pod: on_change(pod.metadata.uid, None),
        selectors={"fieldSelector": f"spec.nodeName={node}"},
    )
