"""Candidates that a kubeconfig or a cluster knows, by the metavar of what is being typed."""

import argparse
from collections.abc import Callable, Iterator
from typing import Final

from cli import kubeconfig
from cli.objects import NodeMetadata
from cli.session import Session, open_session, wanted
from cluster.gpu_node_status import GpuNodeStatus
from cluster.resource import GPU_NODE_STATUSES, NAMESPACES, NODES, PODS, Resource

_SECONDS: Final = 2.0
"""A person who types does not wait longer for an answer."""

Candidates = Iterator[tuple[str, str]]


def _names(session: Session, resource: Resource, *, namespace: str = "") -> Candidates:
    for found in session.client.list(resource, NodeMetadata, namespace=namespace, metadata_only=True):
        yield found.metadata.name, ""


def _pods(arguments: argparse.Namespace) -> Candidates:
    session = open_session(arguments, timeout=_SECONDS)
    return _names(session, PODS, namespace=session.namespace)


def _nodes(arguments: argparse.Namespace) -> Candidates:
    """Answer the nodes of which an agent reports cards, all of them where none does."""
    session = open_session(arguments, timeout=_SECONDS)
    found = list(_names(session, GPU_NODE_STATUSES))
    return iter(found) if found else _names(session, NODES)


def _namespaces(arguments: argparse.Namespace) -> Candidates:
    return _names(open_session(arguments, timeout=_SECONDS), NAMESPACES)


def _uuids(arguments: argparse.Namespace) -> Candidates:
    session = open_session(arguments, timeout=_SECONDS)
    for status in session.client.list(GPU_NODE_STATUSES, GpuNodeStatus):
        for device in status.status.devices if status.status is not None else ():
            yield device.uuid, f"card {device.id} of node {status.metadata.name}, {device.health}"


def _contexts(arguments: argparse.Namespace) -> Candidates:
    for name in kubeconfig.contexts(wanted(arguments)):
        yield name, ""


BY_METAVAR: Final[dict[str, Callable[[argparse.Namespace], Candidates]]] = {
    "POD": _pods,
    "NODE": _nodes,
    "NAMESPACE": _namespaces,
    "UUID": _uuids,
    "CONTEXT": _contexts,
}
