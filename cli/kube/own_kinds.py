"""Objects of the kinds that Tranche defines, in a cluster that may not have all of them."""

from typing import TypeVar

from allocation.bindings.binding import Binding
from cli.errors import CommandError, MissingRightError, NotInstalledError
from cli.kube.client import Client
from cli.tables import note
from cluster.errors import NotFoundError
from cluster.gpu_binding import GpuBinding
from cluster.gpu_claim import GpuClaim
from cluster.gpu_node_status import GpuNodeStatus
from cluster.resource import GPU_BINDINGS, GPU_CLAIMS, GPU_NODE_STATUSES, Resource

T = TypeVar("T")


def read(client: Client, resource: Resource, kind: type[T], *, namespace: str = "") -> list[T]:
    """Return the objects of a kind, in a namespace or in all.

    Raises:
        CommandError: the cluster does not define the resource, or it may not be read.
    """
    try:
        return client.list(resource, kind, namespace=namespace)
    except NotFoundError:
        raise CommandError(
            f"{_not_defined(resource)}: apply the manifests of this version (docs/install.md), or choose another"
            " --context"
        ) from None


def read_if_possible(client: Client, resource: Resource, kind: type[T], *, namespace: str = "") -> list[T]:
    """Return the objects of a kind, in a namespace or in all.

    If they cannot be read, note that what follows does without them.
    """
    try:
        return client.list(resource, kind, namespace=namespace)
    except NotFoundError:
        cause = _not_defined(resource)
    except MissingRightError as error:
        cause = error.cause
    note(f"{cause}: the result is that of a cluster without {resource.kind}s")
    return []


def read_if_defined(client: Client, resource: Resource, kind: type[T], *, namespace: str = "", without: str) -> list[T]:
    """Return the objects of a kind that many clusters do not have, in a namespace or in all.

    If they may not be read, note what is shown `without` them.
    """
    try:
        return client.list(resource, kind, namespace=namespace)
    except NotFoundError:
        return []
    except MissingRightError as error:
        note(f"{error.cause}: {without}")
        return []


def pod_groups(client: Client, resource: Resource, kind: type[T], *, namespace: str = "") -> list[T]:
    """Return the PodGroups of one API group, in a namespace or in all."""
    without = "gangs are shown as if there were none of these PodGroups"
    return read_if_defined(client, resource, kind, namespace=namespace, without=without)


def _not_defined(resource: Resource) -> str:
    return f"resource {resource.plural}.{resource.group} is not defined in this cluster"


def gpu_claims(client: Client, *, namespace: str = "") -> list[GpuClaim]:
    """Return the claims of a namespace, or of all."""
    try:
        return client.list(GPU_CLAIMS, GpuClaim, namespace=namespace)
    except NotFoundError:
        return []


def gpu_claim(client: Client, name: str, *, namespace: str) -> GpuClaim | None:
    """Return a claim, or None if it does not exist."""
    try:
        return client.get(GPU_CLAIMS, GpuClaim, name=name, namespace=namespace)
    except NotFoundError:
        return None


def gpu_bindings(client: Client) -> list[Binding]:
    """Return all bindings.

    Raises:
        CommandError: the cluster does not define the resource.
    """
    try:
        return [each.binding for each in client.list(GPU_BINDINGS, GpuBinding)]
    except NotFoundError:
        raise CommandError(
            f"resource {GPU_BINDINGS.plural}.{GPU_BINDINGS.group} is not defined in this cluster; switch it on by the "
            "component manifests/gpubindings, or with Helm --set bindings.mode=labelled (docs/gpubindings.md), or "
            "choose another --context"
        ) from None


def gpu_node_statuses(client: Client) -> list[GpuNodeStatus]:
    """Return the reports of all agents.

    Raises:
        NotInstalledError: the cluster does not define the resource.
    """
    try:
        return client.list(GPU_NODE_STATUSES, GpuNodeStatus)
    except NotFoundError:
        raise NotInstalledError from None
