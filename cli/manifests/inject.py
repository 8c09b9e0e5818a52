"""`kubectl gpu inject`: manifests as the admission webhook would change them.

The command reads only the installed configuration from the cluster, the GpuQuotas of the pods' namespaces, the
GpuQueues that pods name, GPUBindings if they count, and GpuClaims that pods name and the files do not have. It works
without a cluster too.
"""

import argparse
import sys
from functools import partial
from typing import Final

import msgspec

from allocation.errors import AllocationError
from allocation.settings import AllocationSettings
from cli.errors import CommandError, ConfigurationFileError
from cli.installation.installed import DEFAULTS
from cli.kube.session import open_session
from cli.manifests import manifest, manifest_files, pod_templates
from cli.manifests.cluster_objects import GpuBindings, GpuClaims, GpuQueues, GpuQuotas, UnknownClaimError, claims_of
from cli.manifests.manifest import Document
from cli.tables import note
from cluster.errors import ClusterError
from webhook import dry_run
from webhook.quotas import Quotas
from webhook.review import ForbiddenPodError, UnreadablePodError
from webhook.settings import WebhookSettings

_SECONDS: Final = 5.0
"""The time limit for reading the configuration, without which the command still works."""


class _Rules(msgspec.Struct, frozen=True):
    """The settings of the webhook, and the user and the namespace of pods that say nothing else."""

    allocation: AllocationSettings
    webhook: WebhookSettings
    user: str
    namespace: str


class _Cluster(msgspec.Struct, frozen=True):
    """The objects of the cluster, and of the files, that admission of a pod depends on."""

    bindings: GpuBindings
    claims: GpuClaims
    queues: GpuQueues
    quotas: GpuQuotas


def run(arguments: argparse.Namespace) -> int:
    """Print every document of every file, or the reasons why pods would be refused."""
    rules = _rules(arguments)
    files = [manifest_files.read(name) for name in arguments.filename]
    documents = [document for _, read in files for document in read]
    claims = GpuClaims(claims_of(document.content for document in documents), arguments)
    cluster = _Cluster(GpuBindings(arguments), claims, GpuQueues(arguments), GpuQuotas(arguments))
    refused = False
    pods = 0
    for label, read in files:
        objects = (document for document in read if document.content is not None)
        for number, document in enumerate(objects, start=1):
            where = f"{label}, document {number}"
            if not isinstance(document.content, dict):
                raise CommandError(f"{where} is not a Kubernetes object but a {_kind(document.content)}")
            for template in pod_templates.of(document.content):
                pods += 1
                refused |= not _inject(document, template, rules, cluster, where=f"{where}, {template.owner}")
    if not any(document.content for document in documents):
        raise CommandError(f"no object in {', '.join(arguments.filename)}")
    if refused:
        return 1
    if not pods:
        note("the input has no pod and no pod template, so nothing was changed")
    render = manifest.in_json if arguments.output == "json" else manifest.in_yaml
    print(render(documents), end="")
    return 0


def _inject(
    document: Document, template: pod_templates.Template, rules: _Rules, cluster: _Cluster, *, where: str
) -> bool:
    """Change a pod in its document; return whether the webhook admits it, or never sees pods of its namespace."""
    namespace = template.namespace or rules.namespace
    if namespace in rules.webhook.excluded_namespaces:
        note(f"{where}: not changed, because webhook.excluded_namespaces has its namespace {namespace}")
        return True
    try:
        mutation = dry_run.admit(
            template.pod,
            username=rules.user,
            allocation=rules.allocation,
            settings=rules.webhook,
            quotas=Quotas(gpu_quotas=cluster.quotas.of_namespace(template.namespace)),
            find_claim=partial(cluster.claims.find, namespace=template.namespace),
            find_membership=partial(cluster.queues.membership, namespace=template.namespace),
            find_bound=partial(
                cluster.bindings.bound, namespace=template.namespace, settings=rules.allocation.bindings
            ),
        )
    except (UnreadablePodError, AllocationError, ForbiddenPodError, UnknownClaimError) as error:
        print(f"error: {where}: {error}", file=sys.stderr)
        return False
    for warning in mutation.warnings:
        print(f"warning: {where}: {warning}", file=sys.stderr)
    document.changed |= bool(mutation.operations)
    return True


def _rules(arguments: argparse.Namespace) -> _Rules:
    """Return the settings of the file or of the installation, or the defaults if they cannot be read."""
    try:
        client = None if arguments.config else open_session(arguments, timeout=_SECONDS).client
        from cli.installation import rules  # noqa: PLC0415 -- slow to load, and often without effect

        chosen = rules.of_file(arguments.config) if client is None else rules.of_cluster(client)
    except ConfigurationFileError:
        raise
    except (CommandError, ClusterError) as error:
        note(f"the installed configuration cannot be read: {error}: {DEFAULTS}")
        return _Rules(AllocationSettings(), WebhookSettings(), arguments.user, arguments.namespace)
    chosen.note_gaps()
    return _Rules(chosen.allocation, chosen.webhook, arguments.user, arguments.namespace)


def _kind(content: object) -> str:
    return "list" if isinstance(content, list) else "scalar"
