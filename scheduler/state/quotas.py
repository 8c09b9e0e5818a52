"""The headroom of each namespace: its ResourceQuotas and GpuQuotas less what its pods hold."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping

from allocation import per_pod_quota, quota
from allocation.fairness.quota_spec import QuotaSpec
from allocation.ledger.ledger import Ledger
from allocation.quota import NO_BURST, UNLIMITED, Burst, Headroom, Limits
from allocation.reasons import PodReason
from allocation.request import PodRequest
from allocation.settings import AllocationSettings
from cluster.gpu_quota import GpuQuota
from cluster.resource_quota import NamespaceQuotas, ResourceQuota
from scheduler.fairness.use import Use, UseByOwner
from scheduler.gpu_requirements import WaitingPodError


class Quotas:
    """The limits of every namespace, and its pods with reservations.

    Attributes:
        resource_quotas: the ResourceQuotas.
        counted: what the pods of each namespace hold.
    """

    def __init__(self, *, ledger: Ledger, settings: AllocationSettings) -> None:
        self._settings = settings
        self.resource_quotas = NamespaceQuotas()
        self._gpu_quotas: defaultdict[str, dict[str, GpuQuota]] = defaultdict(dict)
        self._limits: dict[str, Headroom] = {}
        self._requests: dict[str, Headroom] = {}
        self.counted: UseByOwner[str] = UseByOwner(ledger)

    # ---- objects ---------------------------------------------------------------------------------------------------

    def set_quota(self, quota: ResourceQuota) -> None:
        """Set the state of one ResourceQuota of a namespace."""
        self.resource_quotas.set(quota)
        self._sum_up(quota.metadata.namespace)

    def drop_quota(self, quota: ResourceQuota) -> None:
        """Forget one ResourceQuota; the others of its namespace stay."""
        self.resource_quotas.drop(quota)
        self._sum_up(quota.metadata.namespace)

    def set_gpu_quota(self, quota: GpuQuota) -> bool:
        """Set the state of one GpuQuota of a namespace; return whether its spec is new."""
        meta = quota.metadata
        old = self._gpu_quotas[meta.namespace].get(meta.name)
        self._gpu_quotas[meta.namespace][meta.name] = quota
        if old is not None and old.spec == quota.spec:
            return False
        self._sum_up(meta.namespace)
        return True

    def drop_gpu_quota(self, quota: GpuQuota) -> None:
        """Forget one GpuQuota; the others of its namespace stay."""
        meta = quota.metadata
        self._gpu_quotas[meta.namespace].pop(meta.name, None)
        if not self._gpu_quotas[meta.namespace]:
            del self._gpu_quotas[meta.namespace]
        self._sum_up(meta.namespace)

    def hards(self, namespace: str) -> Mapping[str, Mapping[str, str]]:
        """Return the `spec.hard` of the ResourceQuotas of a namespace, by their names."""
        return self.resource_quotas.hards(namespace)

    def gpu_quotas(self) -> Iterator[GpuQuota]:
        """Iterate over the GpuQuotas of all namespaces."""
        yield from [each for quotas in self._gpu_quotas.values() for each in quotas.values()]

    def gpu_quota(self, namespace: str, name: str) -> GpuQuota | None:
        """Return a GpuQuota; None if it does not exist."""
        return self._gpu_quotas.get(namespace, {}).get(name)

    def specs(self, namespace: str) -> Mapping[str, QuotaSpec]:
        """Return the specs of the GpuQuotas of a namespace, by their names."""
        return {name: each.spec for name, each in self._gpu_quotas.get(namespace, {}).items()}

    # ---- pods ------------------------------------------------------------------------------------------------------

    def add_pod(self, uid: str, namespace: str) -> None:
        """Count the reservation of a pod against its namespace."""
        self.counted.add_pod(uid, namespace)

    def remove_pod(self, uid: str) -> None:
        """Stop counting the reservation of a pod."""
        self.counted.remove_pod(uid)

    def use(self, namespace: str) -> Use:
        """Return what the pods of a namespace hold."""
        return self.counted.of(namespace)

    def whole_headroom(self, namespace: str) -> Headroom:
        """Return what the pods of a namespace may reserve together."""
        return self._limits.get(namespace, UNLIMITED).within(self._requests.get(namespace, UNLIMITED))

    def headroom(self, namespace: str, *, without: Collection[str] = (), burst: Burst = NO_BURST) -> Headroom:
        """Return what a pod of a namespace may still reserve, if the pods `without` held no cards.

        The pod may use `burst` beyond that, which limits count, as they do for the other pods.
        """
        used, requested = self.headrooms(namespace, without=without)
        return used.less_burst(burst).within(requested)

    def headrooms(self, namespace: str, *, without: Collection[str] = ()) -> tuple[Headroom, Headroom]:
        """Return how much more the pods of a namespace may use, and how much more they may request."""
        limits, requests = self._limits.get(namespace, UNLIMITED), self._requests.get(namespace, UNLIMITED)
        if limits == UNLIMITED and requests == UNLIMITED:
            return UNLIMITED, UNLIMITED
        use = self.counted.of(namespace, without=without)
        most = use.at_limits()
        return (
            limits.less(memory_mib=most.memory_mib, cores=most.cores, tflops=most.tflops, cards=most.cards),
            requests.less(memory_mib=use.memory_mib, cores=use.cores, tflops=use.tflops, cards=use.cards),
        )

    def pods_left(self, namespace: str) -> int | None:
        """Return how many more pods of a namespace may have a GPU, negative if it has too many; None if any number."""
        most = self._most_pods(namespace)
        return None if most is None else most[0] - self.counted.of(namespace).pods

    def check(self, namespace: str) -> None:
        """Check whether a namespace may have one more pod with a GPU.

        Raises:
            WaitingPodError: it has as many as a GpuQuota allows.
        """
        most = self._most_pods(namespace)
        if most is not None and self.counted.of(namespace).pods >= most[0]:
            why = f"{most[0]} GPU pods of the namespace have a node, as many as GpuQuota {most[1]} allows: maxPods"
            raise WaitingPodError(PodReason.PodQuotaNotFit, why)

    def check_single(
        self, request: PodRequest, namespace: str, limits: Limits, *, card_mib: Callable[[], int], is_instance: bool
    ) -> None:
        """Check whether a pod may request so much, whatever other pods hold, and says how much wherever that counts.

        `limits` are those of its namespace and its GpuQueue. A percentage of memory is that of a card whose memory
        `card_mib` returns. With `is_instance` the pod gets MIG instances.

        Raises:
            WaitingPodError: a GpuQuota of its namespace allows a single pod less, or it leaves out a limited amount.
        """
        if specs := self.specs(namespace):
            known = per_pod_quota.in_mib(request, card_mib)
            if why := per_pod_quota.exceeded(known, specs, self._settings, is_instance=is_instance):
                raise WaitingPodError(PodReason.QuotaSingleExceeded, why)
        if not is_instance and (why := quota.unstated(request, limits)):
            raise WaitingPodError(PodReason.AmountNotStated, why)

    def _most_pods(self, namespace: str) -> tuple[int, str] | None:
        """Return the smallest `maxPods`, and which quota sets it."""
        quotas = self._gpu_quotas.get(namespace)
        if not quotas:
            return None
        limits = ((each.spec.total.max_pods, name) for name, each in quotas.items())
        return min(((most, name) for most, name in limits if most is not None), default=None)

    def _sum_up(self, namespace: str) -> None:
        limits, specs = quota.limits(self.resource_quotas.hards(namespace), self._settings), self.specs(namespace)
        self._limits[namespace] = limits.within(quota.of_gpu_quotas(specs, self._settings))
        self._requests[namespace] = quota.requests_of_gpu_quotas(specs, self._settings)
