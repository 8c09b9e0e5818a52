"""Reads a cluster for the survey: lists in pages, and nothing else. What is forbidden is noted, not fatal."""

import json
import time
from typing import Final, TypeVar

import msgspec

from allocation.names import SYSTEM_NAMESPACE
from cli import pod_templates
from cli.client import Client
from cli.errors import MissingRightError
from cli.migration import hami_objects
from cli.migration.survey import Named, Policy, Rules, Survey, Unread, Version, WebhookConfiguration
from cluster import resource
from cluster.errors import ApiError, NotFoundError
from cluster.gpu_node_status import GpuNodeStatus
from cluster.resource import Resource
from cluster.resource_quota import ResourceQuota
from scheduler.heartbeats import Lease
from scheduler.objects import Namespace, Node

T = TypeVar("T")

_WORKLOADS: Final = (
    Resource("apps", "v1", "deployments", "Deployment"),
    Resource("apps", "v1", "statefulsets", "StatefulSet"),
    Resource("apps", "v1", "daemonsets", "DaemonSet"),
    Resource("apps", "v1", "replicasets", "ReplicaSet"),
    Resource("", "v1", "replicationcontrollers", "ReplicationController"),
    Resource("batch", "v1", "jobs", "Job"),
    Resource("batch", "v1", "cronjobs", "CronJob"),
)
_POLICIES: Final = Resource(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy"
)
_DEFINITIONS: Final = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")


def read(client: Client, rules: Rules, *, namespace: str) -> Survey:
    """Read what matters of `namespace` and of the whole cluster; an empty namespace means all of them.

    Raises:
        UnreachableError: no answer came.
        CommandError: the server does not know who asks, or is none.
    """
    reader = _Reader(client, (*rules.allocation.resources.asking(), *hami_objects.WORDS, "gpu.scheduling/"))
    version = reader.version()
    workloads = [
        {"apiVersion": kind.api_version, "kind": kind.kind, **json.loads(bytes(raw))}
        for kind in _WORKLOADS
        for raw in reader.those_that_matter(kind, namespace=namespace)
    ]
    return Survey(
        namespace=namespace,
        version=version,
        now=time.time() + client.clock_ahead,
        nodes=reader.items(resource.NODES, Node),
        statuses=reader.items(resource.GPU_NODE_STATUSES, GpuNodeStatus),
        leases=reader.items(resource.LEASES, Lease, namespace=SYSTEM_NAMESPACE),
        pods=reader.those_that_matter(resource.PODS, namespace=namespace),
        workloads=[each for each in workloads if any(True for _ in pod_templates.of(each))],
        namespaces=reader.namespaces(namespace),
        quotas=reader.items(resource.RESOURCE_QUOTAS, ResourceQuota, namespace=namespace),
        webhooks=reader.items(resource.MUTATING_WEBHOOKS, WebhookConfiguration),
        policies=reader.items(_POLICIES, Policy),
        definitions=reader.items(_DEFINITIONS, Named, metadata_only=True),
        unread=reader.unread,
    )


class _Reader:
    """Lists, and remembers which it could not have."""

    def __init__(self, client: Client, words: tuple[str, ...]) -> None:
        self._client = client
        self._words = tuple(word.encode() for word in words)
        self.unread: list[Unread] = []

    def items(self, kind: Resource, type_: type[T], *, namespace: str = "", metadata_only: bool = False) -> list[T]:
        """Answer the objects; none of a kind that the cluster does not know."""
        try:
            return self._client.list(kind, type_, namespace=namespace, metadata_only=metadata_only)
        except NotFoundError:
            pass
        except MissingRightError as error:
            self._miss(kind.plural, f"forbidden to {error.right}")
        except ApiError as error:
            self._miss(kind.plural, str(error))
        return []

    def those_that_matter(self, kind: Resource, *, namespace: str) -> list[msgspec.Raw]:
        """Answer the objects that name a GPU, an allocation or a device plugin, as they were sent."""
        # A copy, or each would hold on to the whole page that it came with.
        return [raw.copy() for raw in self.items(kind, msgspec.Raw, namespace=namespace) if self._matters(bytes(raw))]

    def namespaces(self, only: str) -> list[Namespace]:
        """Answer every namespace, or one."""
        if not only:
            return self.items(resource.NAMESPACES, Namespace)
        try:
            return [self._client.get(resource.NAMESPACES, Namespace, name=only)]
        except NotFoundError:
            self._miss("namespaces", f"namespace {only} does not exist")
        except MissingRightError as error:
            self._miss("namespaces", f"forbidden to {error.right}")
        return []

    def version(self) -> Version | None:
        """Answer what the API server is."""
        try:
            return self._client.version(Version)
        except (ApiError, msgspec.DecodeError) as error:
            self._miss("version", str(error))
            return None

    def _matters(self, text: bytes) -> bool:
        return any(word in text for word in self._words)

    def _miss(self, what: str, why: str) -> None:
        self.unread.append(Unread(what, why))
