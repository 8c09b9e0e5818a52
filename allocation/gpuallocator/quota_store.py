"""Quotas of namespaces over what pods are allocated, by the functions that the scheduler's quotas have as well."""

from collections.abc import Collection, Mapping

from allocation import per_pod_quota, quota
from allocation.adjustment import Quotas
from allocation.errors import AllocationError
from allocation.fairness.quota_spec import QuotaSpec
from allocation.gpuallocator.requests import AllocRequest
from allocation.quota import NO_BURST, Burst, Headroom, MinimumRequest
from allocation.settings import AllocationSettings


class QuotaExceededError(AllocationError):
    """A quota allows less than is requested.

    Attributes:
        unresolvable: whether no preemption helps, because the request alone is too large.
    """

    def __init__(self, message: str, *, unresolvable: bool) -> None:
        """Describe the quota that is exceeded."""
        self.unresolvable = unresolvable
        super().__init__(message)


class QuotaStore:
    """The quotas by namespace, and the use of each pod, assumed ones included.

    The use is a sum over pods, so a quota that is created late is right at once. A limit that is not set is unlimited,
    and 0 allows nothing.
    """

    def __init__(self, settings: AllocationSettings) -> None:
        """Begin without quotas; `settings` have the names of the resources that they limit."""
        self._settings = settings
        self._specs: dict[str, dict[str, QuotaSpec]] = {}
        self._uses: dict[str, tuple[str, MinimumRequest, Burst]] = {}

    def set_quota(self, namespace: str, name: str, spec: QuotaSpec | None) -> None:
        """Set a quota of a namespace, or remove it with None."""
        specs = self._specs.setdefault(namespace, {})
        if spec is None:
            specs.pop(name, None)
        else:
            specs[name] = spec

    def specs(self, namespace: str) -> Mapping[str, QuotaSpec]:
        """Return the quotas of a namespace by their names."""
        return dict(self._specs.get(namespace, {}))

    def used(self, namespace: str, *, without: Collection[str] = ()) -> MinimumRequest:
        """Return what the pods of a namespace have, but for some UIDs."""
        return sum((use for use, _ in self._of(namespace, without).values()), MinimumRequest())

    def headroom(self, namespace: str, *, without: Collection[str] = (), burst: Burst = NO_BURST) -> Headroom:
        """Return how much more a pod of a namespace may request once the pods with some UIDs are gone.

        The pod may use `burst` beyond that, which `total.limits` count, as they do for the other pods.
        """
        limits, requests = self._headrooms(namespace, without)
        return limits.less_burst(burst).within(requests)

    def _headrooms(self, namespace: str, without: Collection[str] = ()) -> tuple[Headroom, Headroom]:
        """Return how much more the pods of a namespace may use, and how much more they may request."""
        use, specs = self.used(namespace, without=without), self._specs.get(namespace, {})
        bursts = [burst for _, burst in self._of(namespace, without).values()]
        limits = quota.of_gpu_quotas(specs, self._settings).less(
            memory_mib=use.memory_mib + sum(each.memory_mib for each in bursts),
            cores=use.cores + sum(each.cores for each in bursts),
            tflops=use.tflops,
            cards=use.cards,
        )
        requests = quota.requests_of_gpu_quotas(specs, self._settings)
        return limits, requests.less(memory_mib=use.memory_mib, cores=use.cores, tflops=use.tflops, cards=use.cards)

    def check(self, request: AllocRequest, *, use: MinimumRequest | None = None, without: Collection[str] = ()) -> None:
        """Check whether a new pod is within the quotas once the pods with the UIDs `without` are gone.

        `use` is what its cards amount to; until they are chosen, it is what the request says.

        Raises:
            QuotaExceededError: it is not.
        """
        namespace = request.pod.namespace
        specs, is_instance = self._specs.get(namespace, {}), request.isolation == "partitioned"
        why = per_pod_quota.exceeded(request.as_pod(request.limit), specs, self._settings, is_instance=is_instance)
        if why:
            raise QuotaExceededError(why, unresolvable=True)
        amounts = use if use is not None else quota.minimum_request(request.as_pod())
        headroom = self.headroom(namespace, without=without, burst=_burst(request))
        if not amounts.is_within(headroom):
            raise QuotaExceededError(headroom.excess(request.as_pod()), unresolvable=False)
        pods = len(self._of(namespace, without))
        for name, spec in sorted(specs.items()):
            if spec.total.max_pods is not None and pods >= spec.total.max_pods:
                text = f"GpuQuota {name} limits the pods of namespace {namespace} to {spec.total.max_pods}: {pods} run"
                raise QuotaExceededError(text, unresolvable=False)

    def limits(self, namespace: str) -> Quotas:
        """Return what limits another size of a pod of a namespace."""
        limits, requests = self._headrooms(namespace)
        return Quotas(self.specs(namespace), requests, limits)

    def set_use(self, uid: str, namespace: str, use: MinimumRequest, burst: Burst = NO_BURST) -> None:
        """Count a pod with what it has now, and what it may use beyond that."""
        self._uses[uid] = (namespace, use, burst)

    def remove_use(self, uid: str) -> None:
        """Count a pod no more."""
        self._uses.pop(uid, None)

    def _of(self, namespace: str, without: Collection[str]) -> dict[str, tuple[MinimumRequest, Burst]]:
        return {
            uid: (use, burst)
            for uid, (its, use, burst) in self._uses.items()
            if its == namespace and uid not in without
        }


def _burst(request: AllocRequest) -> Burst:
    """Return how much more than it requests a pod may use, over all its cards."""
    most, own = quota.minimum_request(request.as_pod(request.limit)), quota.minimum_request(request.as_pod())
    return Burst(max(most.memory_mib - own.memory_mib, 0), max(most.cores - own.cores, 0))
