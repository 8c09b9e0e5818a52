"""Read the snapshot of a cluster with paged list requests only. A forbidden request is recorded, not fatal."""

import json
import time
from typing import Final, TypeVar

import msgspec

from allocation.names import SYSTEM_NAMESPACE
from cli.errors import MissingRightError
from cli.installation.rules import Rules
from cli.kube.client import Client
from cli.liveness.installation_check import check_installation
from cli.manifests import pod_templates
from cli.preflight import hami_objects
from cli.preflight.cluster_snapshot import (
    AdmissionPolicy,
    ClusterPolicy,
    ClusterSnapshot,
    GpuNode,
    NamedObject,
    RuntimeClass,
    Unread,
    WebhookConfiguration,
)
from cluster import resource
from cluster.dra import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from cluster.errors import ApiError, NotFoundError
from cluster.gpu_claim import GpuClaim
from cluster.gpu_node_status import GpuNodeStatus
from cluster.lease import Lease
from cluster.resource import Resource
from cluster.resource_quota import ResourceQuota
from cluster.server_version import ServerVersion
from scheduler.objects import Namespace

T = TypeVar("T")

_WORKLOADS: Final = (
    resource.DEPLOYMENTS,
    Resource("apps", "v1", "statefulsets", "StatefulSet"),
    Resource("apps", "v1", "daemonsets", "DaemonSet"),
    Resource("apps", "v1", "replicasets", "ReplicaSet"),
    Resource("", "v1", "replicationcontrollers", "ReplicationController"),
    Resource("batch", "v1", "jobs", "Job"),
    Resource("batch", "v1", "cronjobs", "CronJob"),
)
_CLUSTER_POLICIES: Final = Resource("nvidia.com", "v1", "clusterpolicies", "ClusterPolicy")


def read(client: Client, rules: Rules, *, namespace: str) -> ClusterSnapshot:
    """Read the objects of the cluster, and the pods and workloads of `namespace`, or of all if that is empty.

    Raises:
        UnreachableError: the server does not respond.
        CommandError: the server rejects the credentials, or is not an API server.
    """
    reader = _Reader(client, (*rules.allocation.resources.gpu_resources(), *hami_objects.WORDS, "gpu.scheduling/"))
    version = reader.version()
    workloads = [
        {"apiVersion": kind.api_version, "kind": kind.kind, **json.loads(bytes(raw))}
        for kind in _WORKLOADS
        for raw in reader.relevant_items(kind, namespace=namespace)
    ]
    return ClusterSnapshot(
        namespace=namespace,
        version=version,
        now=time.time() + client.clock_ahead,
        nodes=reader.items(resource.NODES, GpuNode),
        statuses=reader.items(resource.GPU_NODE_STATUSES, GpuNodeStatus),
        leases=reader.items(resource.LEASES, Lease, namespace=SYSTEM_NAMESPACE),
        pods=reader.relevant_items(resource.PODS, namespace=namespace),
        gpu_claims=reader.items(resource.GPU_CLAIMS, GpuClaim, namespace=namespace),
        gpu_bindings=reader.items(resource.GPU_BINDINGS, NamedObject, metadata_only=True),
        workloads=[each for each in workloads if any(True for _ in pod_templates.of(each))],
        namespaces=reader.namespaces(namespace),
        quotas=reader.items(resource.RESOURCE_QUOTAS, ResourceQuota, namespace=namespace),
        webhooks=reader.items(resource.MUTATING_WEBHOOKS, WebhookConfiguration),
        policies=reader.items(resource.VALIDATING_POLICIES, AdmissionPolicy),
        definitions=reader.items(resource.DEFINITIONS, NamedObject, metadata_only=True),
        runtime_class=reader.runtime_class(rules.webhook.runtime_class_name),
        cluster_policies=reader.items(_CLUSTER_POLICIES, ClusterPolicy, is_optional=True),
        device_classes=reader.items(resource.DEVICE_CLASSES, DeviceClass),
        device_taint_rules=reader.items(resource.DEVICE_TAINT_RULES, DeviceTaintRule),
        resource_slices=reader.items(resource.RESOURCE_SLICES, ResourceSlice),
        resource_claims=reader.items(resource.RESOURCE_CLAIMS, ResourceClaim, namespace=namespace),
        unread=reader.unread,
        liveness=check_installation(client, rules),
    )


class _Reader:
    """Lists objects, and records the kinds that could not be listed."""

    def __init__(self, client: Client, words: tuple[str, ...]) -> None:
        self._client = client
        self._words = tuple(word.encode() for word in words)
        self.unread: list[Unread] = []

    def items(
        self,
        kind: Resource,
        type_: type[T],
        *,
        namespace: str = "",
        metadata_only: bool = False,
        is_optional: bool = False,
    ) -> list[T]:
        """Return the objects of a kind, or an empty list for a kind that the cluster does not define."""
        try:
            return self._client.list(kind, type_, namespace=namespace, metadata_only=metadata_only)
        except NotFoundError:
            pass
        except MissingRightError as error:
            self._record_unread(kind.plural, f"forbidden to {error.right}", is_optional=is_optional)
        except ApiError as error:
            self._record_unread(kind.plural, str(error), is_optional=is_optional)
        return []

    def runtime_class(self, name: str) -> RuntimeClass | None:
        """Return a RuntimeClass, or None if it does not exist, cannot be read, or no name is given."""
        if not name:
            return None
        try:
            return self._client.get(resource.RUNTIME_CLASSES, RuntimeClass, name=name)
        except NotFoundError:
            pass
        except MissingRightError as error:
            self._record_unread(resource.RUNTIME_CLASSES.plural, f"forbidden to {error.right}")
        return None

    def relevant_items(self, kind: Resource, *, namespace: str) -> list[msgspec.Raw]:
        """Return the objects that mention a GPU, an allocation or a device plugin, as the API server sent them."""
        # Each is copied, because a slice would keep the whole page in memory.
        return [
            raw.copy() for raw in self.items(kind, msgspec.Raw, namespace=namespace) if self._is_relevant(bytes(raw))
        ]

    def namespaces(self, only: str) -> list[Namespace]:
        """Return every namespace, or `only` that one."""
        if not only:
            return self.items(resource.NAMESPACES, Namespace)
        try:
            return [self._client.get(resource.NAMESPACES, Namespace, name=only)]
        except NotFoundError:
            self._record_unread("namespaces", f"namespace {only} does not exist")
        except MissingRightError as error:
            self._record_unread("namespaces", f"forbidden to {error.right}")
        return []

    def version(self) -> ServerVersion | None:
        """Return the version of the API server, or None if it cannot be read."""
        try:
            return self._client.version(ServerVersion)
        except (ApiError, msgspec.DecodeError) as error:
            self._record_unread("version", str(error))
            return None

    def _is_relevant(self, text: bytes) -> bool:
        return any(word in text for word in self._words)

    def _record_unread(self, what: str, why: str, *, is_optional: bool = False) -> None:
        self.unread.append(Unread(what, why, is_optional))
