"""Completion candidates from the kubeconfig and the cluster, by the metavar of the argument."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from allocation import gang
from allocation.errors import AllocationError
from allocation.names import CLAIM
from allocation.wire import record
from cli.errors import CommandError
from cli.kube import kubeconfig, own_kinds
from cli.kube.objects import NodeMetadata, Pod
from cli.kube.own_kinds import gpu_node_statuses
from cli.kube.pods_of import pods_of
from cli.kube.session import Session, open_session, overrides
from cluster.errors import NotFoundError
from cluster.resource import (
    GPU_NODE_STATUSES,
    GPU_QUEUES,
    GPU_QUOTAS,
    KUBERNETES_POD_GROUPS,
    NAMESPACES,
    NODES,
    PODS,
    Resource,
)

POD: Final = "pod"
"""The destination of the argument that names a pod, in the commands with a flag for one of its containers."""
_SECONDS: Final = 2.0
"""A user who presses Tab does not wait longer."""

Candidates = Iterator[tuple[str, str]]


def _names(session: Session, resource: Resource, *, namespace: str = "") -> Candidates:
    for named in session.client.list(resource, NodeMetadata, namespace=namespace, metadata_only=True):
        yield named.metadata.name, ""


def _pods(arguments: argparse.Namespace) -> Candidates:
    session = open_session(arguments, timeout=_SECONDS)
    return _names(session, PODS, namespace=session.namespace)


def _containers(arguments: argparse.Namespace) -> Candidates:
    """Return the containers of the pod that the line names, or of the first pod of a workload; none without one."""
    named: str = getattr(arguments, POD)
    if not named:
        return
    pod = pods_of(open_session(arguments, timeout=_SECONDS), named, Pod)[0]
    allocation = record.of_annotations(pod.metadata.annotations)
    with_cards = allocation.containers if allocation is not None else {}
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        yield container.name, "has cards" if container.name in with_cards else ""


def _nodes(arguments: argparse.Namespace) -> Candidates:
    """Return the nodes whose cards an agent reports, or all nodes without such reports."""
    session = open_session(arguments, timeout=_SECONDS)
    reported = list(_names(session, GPU_NODE_STATUSES))
    return iter(reported) if reported else _names(session, NODES)


def _namespaces(arguments: argparse.Namespace) -> Candidates:
    return _names(open_session(arguments, timeout=_SECONDS), NAMESPACES)


def _uuids(arguments: argparse.Namespace) -> Candidates:
    session = open_session(arguments, timeout=_SECONDS)
    for report in gpu_node_statuses(session.client):
        for device in report.status.devices if report.status is not None else ():
            yield device.uuid, f"card {device.id} of node {report.metadata.name}, {device.health}"


def _apps(arguments: argparse.Namespace) -> Candidates:
    bindings = own_kinds.gpu_bindings(open_session(arguments, timeout=_SECONDS).client)
    return ((app, "") for app in sorted({each.spec.app_name for each in bindings}))


def _owners(arguments: argparse.Namespace) -> Candidates:
    bindings = own_kinds.gpu_bindings(open_session(arguments, timeout=_SECONDS).client)
    return ((owner, "") for owner in sorted({each.spec.owner for each in bindings} - {""}))


def _queues(arguments: argparse.Namespace) -> Candidates:
    return _names(open_session(arguments, timeout=_SECONDS), GPU_QUEUES)


def _quotas(arguments: argparse.Namespace) -> Candidates:
    session = open_session(arguments, timeout=_SECONDS)
    return _names(session, GPU_QUOTAS, namespace=session.namespace)


def _gangs(arguments: argparse.Namespace) -> Candidates:
    """Return the gangs of the namespace, by the labels and annotations of its pods and by its GpuClaims.

    Metadata of pods is read, because specs of thousands take too long. So where a pod names its gang in its spec, its
    PodGroup is listed, whether it has pods or not.
    """
    session = open_session(arguments, timeout=_SECONDS)
    refs = {
        claim.metadata.name: claim.spec.gang_ref
        for claim in own_kinds.gpu_claims(session.client, namespace=session.namespace)
    }
    found = set[str]()
    for pod in session.client.list(PODS, NodeMetadata, namespace=session.namespace, metadata_only=True):
        labels, annotations = pod.metadata.labels, pod.metadata.annotations
        with suppress(AllocationError):
            declared = gang.declared(labels, annotations, gang_ref=refs.get(annotations.get(CLAIM, ""), ""))
            found |= {declared.name} if declared is not None else set()
    with suppress(NotFoundError, CommandError):  # the cluster has no such kind, or the user may not read it
        found |= {name for name, _ in _names(session, KUBERNETES_POD_GROUPS, namespace=session.namespace)}
    return ((name, "") for name in sorted(found))


def _contexts(arguments: argparse.Namespace) -> Candidates:
    for name in kubeconfig.contexts(overrides(arguments)):
        yield name, ""


BY_METAVAR: Final[dict[str, Callable[[argparse.Namespace], Candidates]]] = {
    "POD": _pods,
    "CONTAINER": _containers,
    "NODE": _nodes,
    "NAMESPACE": _namespaces,
    "UUID": _uuids,
    "APP": _apps,
    "OWNER": _owners,
    "QUEUE": _queues,
    "QUOTA": _quotas,
    "GANG": _gangs,
    "CONTEXT": _contexts,
}
