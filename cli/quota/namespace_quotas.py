"""The quotas of namespaces, and what pods use of them, counted as the scheduler counts it."""

from collections.abc import Mapping

from allocation.settings import AllocationSettings
from cli.kube import own_kinds
from cli.kube.client import Client
from cli.kube.objects import LIVE, Pod
from cli.top.namespace_sums import NamespaceSums, add_up
from cluster.gpu_quota import GpuQuota
from cluster.resource import GPU_QUOTAS, PODS, RESOURCE_QUOTAS
from cluster.resource_quota import NamespaceQuotas, ResourceQuota
from scheduler.api import quota_view
from scheduler.api.quota_types import QuotasView
from scheduler.fairness.use import Use


def read(client: Client, namespace: str, settings: AllocationSettings) -> tuple[QuotasView, Mapping[str, int]]:
    """Return the quotas of a namespace, or of all if it is empty, and in which namespaces how many pods are uncounted.

    Raises:
        CommandError: an object may not be read, or its resource is not defined.
    """
    gpu_quotas = own_kinds.read(client, GPU_QUOTAS, GpuQuota, namespace=namespace)
    resource_quotas = NamespaceQuotas()
    for each in client.list(RESOURCE_QUOTAS, ResourceQuota, namespace=namespace):
        resource_quotas.set(each)
    sums = add_up(client.list(PODS, Pod, namespace=namespace, field_selector=LIVE), settings)
    view = quota_view.view(gpu_quotas, resource_quotas, use_of=lambda name: _use(sums, name), settings=settings)
    return view, {name: each.uncounted for name, each in sorted(sums.items()) if each.uncounted}


def _use(sums: Mapping[str, NamespaceSums], namespace: str) -> Use:
    found = sums.get(namespace)
    return found.use if found is not None else Use()
