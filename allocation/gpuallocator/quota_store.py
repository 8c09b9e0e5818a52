"""Quotas of namespaces over what pods are allocated, by the functions that the scheduler's quotas have as well."""

from collections.abc import Collection, Mapping

from allocation import per_pod_quota, quota
from allocation.adjustment import Quotas
from allocation.errors import AllocationError
from allocation.fairness.quota_spec import QuotaSpec
from allocation.gpuallocator.requests import AllocRequest
from allocation.quota import Headroom, MinimumRequest
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
        self._uses: dict[str, tuple[str, MinimumRequest]] = {}

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
        return sum((use for use in self._of(namespace, without).values()), MinimumRequest())

    def headroom(self, namespace: str, *, without: Collection[str] = ()) -> Headroom:
        """Return how much more the pods of a namespace may have once the pods with some UIDs are gone."""
        use = self.used(namespace, without=without)
        full = quota.of_gpu_quotas(self._specs.get(namespace, {}), self._settings)
        return full.less(memory_mib=use.memory_mib, cores=use.cores, cards=use.cards)

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
        headroom = self.headroom(namespace, without=without)
        if not headroom.allows(memory_mib=amounts.memory_mib, cores=amounts.cores, cards=amounts.cards):
            raise QuotaExceededError(headroom.excess(request.as_pod()), unresolvable=False)
        pods = len(self._of(namespace, without))
        for name, spec in sorted(specs.items()):
            if spec.total.max_pods is not None and pods >= spec.total.max_pods:
                text = f"GpuQuota {name} limits the pods of namespace {namespace} to {spec.total.max_pods}: {pods} run"
                raise QuotaExceededError(text, unresolvable=False)

    def limits(self, namespace: str) -> Quotas:
        """Return what limits another size of a pod of a namespace."""
        return Quotas(self.specs(namespace), self.headroom(namespace))

    def set_use(self, uid: str, namespace: str, use: MinimumRequest) -> None:
        """Count a pod with what it has now."""
        self._uses[uid] = (namespace, use)

    def remove_use(self, uid: str) -> None:
        """Count a pod no more."""
        self._uses.pop(uid, None)

    def _of(self, namespace: str, without: Collection[str]) -> dict[str, MinimumRequest]:
        return {uid: use for uid, (its, use) in self._uses.items() if its == namespace and uid not in without}
