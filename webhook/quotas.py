"""The quotas of a namespace at admission: what a pod gets that says nothing, and what no pod can have."""

from collections.abc import Mapping

import msgspec

from allocation import burst, per_pod_quota, quota
from allocation.errors import InvalidFieldError
from allocation.fairness.quota_spec import QuotaSpec
from allocation.per_pod_quota import Default
from allocation.pod import Resources
from allocation.quota import Burst
from allocation.request import PodRequest, read_request
from allocation.settings import AllocationSettings
from webhook.resources import stated_resources
from webhook.review import ForbiddenNowError, PodContainer, PodSpec


class Quotas(msgspec.Struct, frozen=True):
    """The quotas of a namespace, by their names.

    Attributes:
        resource_quotas: `spec.hard` of its ResourceQuotas.
        gpu_quotas: `spec` of its GpuQuotas.
    """

    resource_quotas: Mapping[str, Mapping[str, str]] = {}
    gpu_quotas: Mapping[str, QuotaSpec] = {}

    def check(
        self, request: PodRequest, settings: AllocationSettings, *, is_bound: bool = False, is_instance: bool = False
    ) -> None:
        """Check that a pod could be placed if no other pod of the namespace existed.

        With `is_bound` GPUBindings decide how much the pod gets: only the scheduler knows how much. With `is_instance`
        it gets MIG instances.

        Raises:
            ForbiddenNowError: it requests more than one pod may have, or than all pods may have together, or leaves out
                an amount that a quota limits.
        """
        if not self.resource_quotas and not self.gpu_quotas:
            return
        if not is_bound:
            self._check_amounts(request, settings, is_instance=is_instance)
        for name, spec in sorted(self.gpu_quotas.items()):
            if spec.total.max_pods == 0:
                raise ForbiddenNowError(
                    f"exceeding quota: GpuQuota {name}: spec.total.maxPods is 0, so no pod of the namespace may have a"
                    " GPU; have the quota raised, or use another namespace"
                )

    def _check_amounts(self, request: PodRequest, settings: AllocationSettings, *, is_instance: bool) -> None:
        if excess := per_pod_quota.exceeded(request, self.gpu_quotas, settings, is_instance=is_instance):
            raise ForbiddenNowError(f"exceeding quota: {excess}; request less, or have the quota raised")
        headroom = self._limits(settings, burst.of_request(request))
        if not is_instance and (missing := quota.unstated(request, headroom.limits)):
            raise ForbiddenNowError(f"exceeding quota: {missing}")
        if excess := quota.exceeds_quota(request, headroom):
            raise ForbiddenNowError(f"exceeding resource quota: {excess}; request less, or have the quota raised")

    def completed(self, spec: PodSpec, request: PodRequest, settings: AllocationSettings) -> tuple[PodSpec, PodRequest]:
        """Return `spec` and its `request` with the defaults for memory and cores in GPU containers that lack them.

        Raises:
            ForbiddenNowError: a default has an invalid value.
        """
        defaults = per_pod_quota.defaults(self.gpu_quotas, settings) if self.gpu_quotas else ()
        gpu_containers = {container.name for container in request.gpu_containers}
        if not defaults or not gpu_containers:
            return spec, request

        def complete(container: PodContainer) -> PodContainer:
            return _completed(container, defaults, settings) if container.name in gpu_containers else container

        spec = msgspec.structs.replace(
            spec,
            init_containers=[complete(container) for container in spec.init_containers],
            containers=[complete(container) for container in spec.containers],
        )
        try:
            return spec, read_request(spec, settings)
        except InvalidFieldError as error:
            sources = ", ".join(dict.fromkeys(default.quota for default in defaults))
            raise ForbiddenNowError(f"spec.single.defaults of GpuQuota {sources} is not valid: {error}") from None

    def _limits(self, settings: AllocationSettings, more: Burst) -> quota.Headroom:
        """Return the headroom of the namespace without pods, for one that may use `more` than it requests."""
        limits = quota.limits(self.resource_quotas, settings).within(quota.of_gpu_quotas(self.gpu_quotas, settings))
        return limits.less_burst(more).within(quota.requests_of_gpu_quotas(self.gpu_quotas, settings))


def _completed(container: PodContainer, defaults: tuple[Default, ...], settings: AllocationSettings) -> PodContainer:
    names, stated = settings.resources, stated_resources(container)
    memory, compute = {names.memory, names.memory_percentage}, {names.cores, names.tflops}
    missing = {
        default.resource: str(default.amount)
        for default in defaults
        if stated.keys().isdisjoint(memory if default.resource in memory else compute)
    }
    limits, requests = container.resources.limits, container.resources.requests
    return msgspec.structs.replace(container, resources=Resources({**(limits or {}), **missing}, requests))
