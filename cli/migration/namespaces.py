"""Which namespaces with GPU pods have opted in, and what their quotas limit."""

from collections.abc import Iterator

from allocation import names
from allocation.settings import ResourceNames
from cli.migration.findings import Finding
from cli.migration.planned import UNSERVED
from cli.migration.survey import Survey

_PREFIX = "limits."


def judge(survey: Survey, used: dict[str, int], resources: ResourceNames) -> Iterator[Finding]:
    """Answer what is to be known of the namespaces in `used`, which tells how many plans and pods with GPU each has."""
    labels = {each.metadata.name: each.metadata.labels for each in survey.namespaces}
    for namespace, count in sorted(used.items()):
        if namespace in UNSERVED or namespace not in labels:
            continue
        word = labels[namespace].get(names.INJECTION_LABEL, "")
        if word != "enabled":
            said = f"label {names.INJECTION_LABEL} is {word!r}" if word else "has not opted in"
            yield Finding(
                "changes",
                (f"namespace {namespace}",),
                f"{said}: its {count} GPU pods and templates are left alone, unless they opt in by their own label",
                f"kubectl label namespace {namespace} {names.INJECTION_LABEL}=enabled --overwrite",
            )
    for quota in survey.quotas:
        yield from _quota(f"ResourceQuota {quota.metadata.namespace}/{quota.metadata.name}", quota.spec.hard, resources)


def _quota(spoken: str, hard: dict[str, str], resources: ResourceNames) -> Iterator[Finding]:
    limits = {
        name: hard[_PREFIX + name]
        for name in (resources.memory, resources.cores, resources.count)
        if _PREFIX + name in hard
    }
    if limits:
        told = ", ".join(f"{name} {limit}" for name, limit in limits.items())
        what = f"limits what its namespace's pods hold together: {told}; a pod beyond it waits with ResourceQuotaNotFit"
        yield Finding("notes", (spoken,), what)
    if resources.count in limits:
        what = f"{_PREFIX}{resources.count}, which HAMi does not look at, limits shares of cards from the switch on"
        yield Finding("changes", (spoken,), what, "remove it, or check the number")
    if f"requests.{resources.count}" in hard:
        what = f"requests.{resources.count} is Kubernetes' own: it goes on counting cards of pods when they are created"
        yield Finding("notes", (spoken,), what)
