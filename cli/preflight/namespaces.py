"""Findings about namespaces with GPU pods: whether they have opted in, and what their quotas limit."""

from collections.abc import Iterator

from allocation import names
from allocation.settings import ResourceNames
from cli.preflight.cluster_snapshot import ClusterSnapshot
from cli.preflight.findings import Finding
from webhook.settings import WebhookSettings

_PREFIX = "limits."


def evaluate(
    snapshot: ClusterSnapshot, used: dict[str, int], resources: ResourceNames, settings: WebhookSettings
) -> Iterator[Finding]:
    """Return the findings about namespaces; `used` has the number of GPU pods and templates of each."""
    labels = {each.metadata.name: each.metadata.labels for each in snapshot.namespaces}
    for namespace, count in sorted(used.items()):
        if namespace in (*settings.excluded_namespaces, *settings.included_namespaces) or namespace not in labels:
            continue
        value = labels[namespace].get(names.INJECTION_LABEL, "")
        if value != "enabled":
            problem = f"label {names.INJECTION_LABEL} is {value!r}" if value else "has not opted in"
            yield Finding(
                "changes",
                (f"namespace {namespace}",),
                f"{problem}: its {count} GPU pods and templates are left alone, unless their own label opts them in",
                f"kubectl label namespace {namespace} {names.INJECTION_LABEL}=enabled --overwrite",
            )
    for quota in snapshot.quotas:
        yield from _quota(f"ResourceQuota {quota.metadata.namespace}/{quota.metadata.name}", quota.spec.hard, resources)


def _quota(subject: str, hard: dict[str, str], resources: ResourceNames) -> Iterator[Finding]:
    limits = {
        name: hard[_PREFIX + name]
        for name in (resources.memory, resources.cores, resources.count)
        if _PREFIX + name in hard
    }
    if limits:
        listed = ", ".join(f"{name} {limit}" for name, limit in limits.items())
        what = f"limits what pods of its namespace hold in total: {listed}; further pods wait with ResourceQuotaNotFit"
        yield Finding("notes", (subject,), what)
    if _PREFIX + resources.memory_percentage in hard:
        what = (
            f"{_PREFIX}{resources.memory_percentage} has no effect: a percentage is charged as the {resources.memory}"
            " that it makes up of the card"
        )
        yield Finding("changes", (subject,), what, f"limit {_PREFIX}{resources.memory} instead")
    if resources.count in limits:
        what = f"{_PREFIX}{resources.count}, which HAMi does not look at, limits shares of cards after the switch"
        yield Finding("changes", (subject,), what, "remove it, or check the number")
    if f"requests.{resources.count}" in hard:
        what = f"requests.{resources.count} is Kubernetes' own limit: it still counts the cards of pods at creation"
        yield Finding("notes", (subject,), what)
