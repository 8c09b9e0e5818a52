"""`kubectl gpu quota`: what a namespace uses of its quotas, and what is left."""

import argparse

import msgspec

from cli.errors import CommandError
from cli.installation import rules
from cli.kube.session import Session
from cli.quota import namespace_quotas, tables
from cli.tables import note, render
from cluster.resource import GPU_QUOTAS
from scheduler.api.quota_types import QuotaView


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Print the quotas of the namespace, of all namespaces, or those of one name."""
    effective_rules = rules.read(arguments.config, session.client)
    settings, namespace = effective_rules.allocation, "" if arguments.all_namespaces else session.namespace
    view, uncounted = namespace_quotas.read(session.client, namespace, settings)
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
    table = tables.of_quotas(
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
