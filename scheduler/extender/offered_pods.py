"""The pods that kube-scheduler asks about, as the API server has them, and which of them must not be bound."""

import logging
from collections.abc import Callable

from allocation.errors import AllocationError
from allocation.gang import declared
from allocation.names import CLAIM
from allocation.reasons import PodReason
from cluster.api import ReadApi
from cluster.dra import ResourceClaim
from cluster.errors import ClusterError, NotFoundError
from cluster.informer import Informer
from cluster.resource import PODS, RESOURCE_CLAIMS
from scheduler.cycle import messages
from scheduler.dra.device_classes import DeviceClasses
from scheduler.extender.errors import RefusedError
from scheduler.extender.wire import BindingArgs, PodMeta
from scheduler.objects import Pod

log = logging.getLogger(__name__)


class OfferedPods:
    """Finds pods in the cache, or reads them."""

    def __init__(
        self,
        api: ReadApi,
        *,
        pods: Informer[Pod],
        device_classes: DeviceClasses,
        names: frozenset[str],
        reads_live: Callable[[], bool],
    ) -> None:
        """Let pods be bound whose schedulerName is one of `names`.

        While `reads_live`, kube-scheduler may have allocated devices to a pod just before `/bind`, so each is read.
        """
        self._api = api
        self._pods = pods
        self._device_classes = device_classes
        self._names = names
        self._reads_live = reads_live

    def cached(self, meta: PodMeta) -> Pod | None:
        """Return a pod from the cache, or None."""
        return self._pods.get(meta.name, meta.namespace)

    async def with_gang(self, meta: PodMeta) -> Pod | None:
        """Return a pod from the cache; one that may belong to a gang is read if the cache does not have it yet."""
        pod = self.cached(meta)
        if (pod is None or pod.uid != meta.uid) and _may_have_gang(meta):
            return await self.known(meta)
        return pod

    async def known(self, meta: PodMeta) -> Pod | None:
        """Return a pod from the cache, or read it if kube-scheduler was faster; None if it is gone or cannot be read.

        kube-scheduler asks about a pod that fits nowhere once, and may not ask again for five minutes.
        """
        pod = self._pods.get(meta.name, meta.namespace)
        if pod is not None and pod.uid == meta.uid:
            return pod
        try:
            pod = await self._api.get(PODS, Pod, name=meta.name, namespace=meta.namespace)
        except ClusterError as error:
            log.info("pod %s/%s, of which kube-scheduler asks, cannot be read: %s", meta.namespace, meta.name, error)
            return None
        if pod.uid != meta.uid:
            return None
        self._pods.add_if_new(pod)
        return pod

    async def to_bind(self, args: BindingArgs) -> Pod:
        """Return the pod from the cache, or read it if the cache does not have it yet, or may have it too old.

        Raises:
            RefusedError: it does not exist any more, cannot be read, or must not be bound.
        """
        pod = self._pods.get(args.podname, args.podnamespace)
        if pod is None or pod.uid != args.poduid or self._reads_live():
            pod = await self._read(args)
            # The cache notices its deletion even if no watch event shows the pod.
            self._pods.add_if_new(pod)
        reason = _refusal(pod, args, self._names) or await self._devices(pod)
        if reason:
            raise RefusedError(f"pod {pod}: {reason}")
        return pod

    async def _devices(self, pod: Pod) -> str:
        """Return the reason why a pod has devices by DRA, or an empty string if kube-scheduler allocated none to it.

        The status of a pod whose devices were given back still names the ResourceClaim, which does not exist any more.
        """
        allocated = pod.status.extended_resource_claim_status
        if allocated is None:
            return ""
        name, namespace = allocated.resource_claim_name, pod.metadata.namespace
        try:
            await self._api.get(RESOURCE_CLAIMS, ResourceClaim, name=name, namespace=namespace)
        except NotFoundError:
            return ""
        except ClusterError as error:
            why = f"whether its ResourceClaim {name} exists is unknown: {error}"
            return messages.waiting(PodReason.DraAllocated, why)
        conflict = self._device_classes.conflict(allocated.resources) or (
            f"ResourceClaim {name} has devices for {', '.join(allocated.resources)}, too: remove extendedResourceName"
            " from the DeviceClass that names it, and delete the claim"
        )
        return messages.waiting(PodReason.DraAllocated, conflict)

    async def _read(self, args: BindingArgs) -> Pod:
        try:
            return await self._api.get(PODS, Pod, name=args.podname, namespace=args.podnamespace)
        except NotFoundError:
            raise RefusedError(f"pod {args.podnamespace}/{args.podname} does not exist") from None
        except ClusterError as error:
            raise RefusedError(f"pod {args.podnamespace}/{args.podname} cannot be read: {error}") from None


def _may_have_gang(meta: PodMeta) -> bool:
    annotations = meta.annotations or {}
    try:
        return CLAIM in annotations or declared(meta.labels or {}, annotations) is not None
    except AllocationError:
        return False  # it is held


def _refusal(pod: Pod, args: BindingArgs, names: frozenset[str]) -> str:
    """Return the reason why this pod must not be bound, or an empty string."""
    if pod.uid != args.poduid:
        return f"its UID is {pod.uid}, not {args.poduid}: another pod has the name now"
    if pod.spec.node_name:
        return f"it is bound to {pod.spec.node_name} already"
    if pod.finished or pod.metadata.deletion_timestamp:
        return "it is finished or being deleted"
    if pod.spec.scheduler_name not in names:
        return f"its schedulerName is {pod.spec.scheduler_name}; ours are {', '.join(sorted(names))}"
    if pod.spec.scheduling_gates:
        return f"it has scheduling gates: {pod.spec.gates}"
    return ""
