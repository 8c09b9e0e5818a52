"""`kubectl gpu quota`: what a namespace uses of its quotas, and what is left."""

import argparse
from collections.abc import Iterator, Mapping

import msgspec

from allocation.settings import AllocationSettings
from cli.errors import CommandError
from cli.installation import rules
from cli.kube import own_kinds
from cli.kube.client import Client
from cli.kube.objects import LIVE, Pod
from cli.kube.session import Session
from cli.tables import NOTHING, Table, note, render
from cli.top.namespace_usage import NamespaceSums, add_up
from cluster.gpu_quota import GpuQuota
from cluster.resource import GPU_QUOTAS, PODS, RESOURCE_QUOTAS
from cluster.resource_quota import NamespaceQuotas, ResourceQuota
from scheduler.api import quota_view
from scheduler.api.quota_types import LimitView, QuotasView, QuotaView
from scheduler.fairness.use import Use


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Print the quotas of the namespace, of all namespaces, or those of one name."""
    effective_rules = rules.read(arguments.config, session.client)
    settings, namespace = effective_rules.allocation, "" if arguments.all_namespaces else session.namespace
    view, uncounted = _read(session.client, namespace, settings)
    effective_rules.note_gaps()
    where = f"in namespace {namespace}" if namespace else "in any namespace"
    if arguments.quota:
        view = msgspec.structs.replace(view, quotas=tuple(each for each in view.quotas if each.name == arguments.quota))
        if not view.quotas:
            raise CommandError(
                f"no GpuQuota, and no ResourceQuota that limits GPU resources, is named {arguments.quota} {where};"
                " 'kubectl gpu quota -A' shows those of all namespaces"
            )
    if arguments.output == "name":
        print("".join(f"{_name(each)}\n" for each in view.quotas), end="")
        return 0
    if not view.quotas:
        note(f"no GpuQuota, and no ResourceQuota that limits GPU resources, {where}")
    table = _table(
        view,
        count=settings.resources.count,
        wide=arguments.output == "wide",
        all_namespaces=arguments.all_namespaces,
    )
    print(render(view, table, output=arguments.output, headers=not arguments.no_headers), end="", flush=True)
    for name, pods in uncounted.items():
        note(f"namespace {name}: {pods} running pods cannot be counted; see 'kubectl gpu top'")
    return 0


def _name(quota: QuotaView) -> str:
    """Return the quota as kubectl names it."""
    group = f".{GPU_QUOTAS.group}" if quota.kind == GPU_QUOTAS.kind else ""
    return f"{quota.kind.lower()}{group}/{quota.name}"


def _read(client: Client, namespace: str, settings: AllocationSettings) -> tuple[QuotasView, Mapping[str, int]]:
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


def _table(view: QuotasView, *, count: str, wide: bool, all_namespaces: bool) -> Table:
    """Return the limits on all pods; the wide table adds the threshold of the alert, and what one pod may have.

    `count` is the resource of cards, to whose row `single.maxCards` belongs.
    """
    headers = ["NAMESPACE"] if all_namespaces else []
    headers += ["QUOTA", "RESOURCE", "USED", "LIMIT", "LEFT", "ALERT"]
    headers += ["THRESHOLD", "SINGLE", "DEFAULT"] if wide else []
    rows = []
    for quota in view.quotas:
        head = [quota.namespace] if all_namespaces else []
        head.append(f"{quota.kind.lower()}/{quota.name}")
        rows += [[*head, *row] for row in _rows(quota, count=count, wide=wide)]
    return Table(headers, rows)


def _rows(quota: QuotaView, *, count: str, wide: bool) -> Iterator[list[str]]:
    total = {each.resource: each for each in quota.limits}
    single = _single(quota, count)
    resources = sorted({*total, *single} if wide else total)
    for resource in resources or [NOTHING]:
        row = [resource, *_used_cells(total.get(resource), is_gpu_quota=quota.alert_threshold_percent is not None)]
        if wide:
            threshold = quota.alert_threshold_percent
            row += [NOTHING if threshold is None else f"{threshold}%", *single.get(resource, (NOTHING, NOTHING))]
        yield row


def _used_cells(limit: LimitView | None, *, is_gpu_quota: bool) -> list[str]:
    """Return what is used, the limit, what is left, and whether that is too little."""
    if limit is None:
        return [NOTHING] * 4
    alert = ("yes" if limit.nearly_full else "no") if is_gpu_quota else NOTHING
    return [str(limit.used), str(limit.limit), f"{limit.available_percent}%", alert]


def _single(quota: QuotaView, count: str) -> dict[str, tuple[str, str]]:
    """Return what one pod may have of each resource, and what it gets where it does not say."""
    single = quota.single
    if single is None:
        return {}
    most = {**single.limits, **({count: single.max_cards} if single.max_cards is not None else {})}
    return {
        resource: (str(most.get(resource, NOTHING)), str(single.defaults.get(resource, NOTHING)))
        for resource in {*most, *single.defaults}
    }
