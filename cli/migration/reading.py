"""Reads a cluster for the survey: lists in pages, and nothing else. What is forbidden is noted, not fatal."""

import json
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from allocation.names import SYSTEM_NAMESPACE
from cli import pod_templates
from cli.migration import hami_objects
from cli.migration.survey import Named, Policy, Rules, Survey, Unread, Version, WebhookConfiguration
from cluster import resource
from cluster.api import Api, ListMeta
from cluster.errors import ApiError, GoneError, NotFoundError
from cluster.gpu_node_status import GpuNodeStatus
from cluster.resource import Resource
from cluster.resource_quota import ResourceQuota
from scheduler.heartbeats import Lease
from scheduler.objects import Namespace, Node

T = TypeVar("T")

_PAGE: Final = "500"
_ATTEMPTS: Final = 3
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


async def read(api: Api, rules: Rules, *, namespace: str) -> Survey:
    """Read what matters of `namespace` and of the whole cluster; an empty namespace means all of them.

    Raises:
        UnreachableError: no answer came.
    """
    reader = _Reader(api)
    words = tuple(name.encode() for name in rules.allocation.resources.asking())

    def matters(raw: msgspec.Raw) -> msgspec.Raw | None:
        text = bytes(raw)
        is_any = any(word in text for word in (*words, *hami_objects.WORDS, b"gpu.scheduling/"))
        return raw.copy() if is_any else None  # else it would hold on to its whole page

    workloads = [
        {"apiVersion": kind.api_version, "kind": kind.kind, **json.loads(bytes(raw))}
        for kind in _WORKLOADS
        for raw in await reader.items(kind, msgspec.Raw, namespace=namespace, keep=matters)
    ]
    return Survey(
        namespace=namespace,
        version=await reader.version(),
        now=time.time(),
        nodes=await reader.items(resource.NODES, Node),
        statuses=await reader.items(resource.GPU_NODE_STATUSES, GpuNodeStatus),
        leases=await reader.items(resource.LEASES, Lease, namespace=SYSTEM_NAMESPACE),
        pods=await reader.items(resource.PODS, msgspec.Raw, namespace=namespace, keep=matters),
        workloads=[each for each in workloads if any(True for _ in pod_templates.of(each))],
        namespaces=await reader.namespaces(namespace),
        quotas=await reader.items(resource.RESOURCE_QUOTAS, ResourceQuota, namespace=namespace),
        webhooks=await reader.items(resource.MUTATING_WEBHOOKS, WebhookConfiguration),
        policies=await reader.items(_POLICIES, Policy),
        definitions=await reader.items(_DEFINITIONS, Named),
        unread=reader.unread,
    )


class _Reader:
    """Lists, and remembers which it could not have."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.unread: list[Unread] = []

    async def items(
        self, kind: Resource, type_: type[T], *, namespace: str = "", keep: Callable[[T], T | None] = lambda each: each
    ) -> list[T]:
        """Answer what `keep` makes of the objects; none of a kind that the cluster does not know."""
        where = f" in namespace {namespace}" if namespace else " of the whole cluster"
        for _ in range(_ATTEMPTS):
            try:
                return await self._pages(kind, type_, namespace, keep)
            except GoneError:
                continue  # the pages were asked for too slowly: from the first one again
            except NotFoundError:
                return []
            except ApiError as error:
                why = f"forbidden to list {kind.plural}{where}" if error.status == 403 else str(error)
                self.unread.append(Unread(kind.plural, why))
                return []
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                self.unread.append(Unread(kind.plural, f"the list of {kind.plural} cannot be read: {error}"))
                return []
        self.unread.append(Unread(kind.plural, f"the list of {kind.plural} went stale {_ATTEMPTS} times"))
        return []

    async def _pages(self, kind: Resource, type_: type[T], namespace: str, keep: Callable[[T], T | None]) -> list[T]:
        page_type: Any = msgspec.defstruct("Page", [("metadata", ListMeta), ("items", list[type_] | None, None)])  # type: ignore[valid-type]
        decoder: Any = msgspec.json.Decoder(page_type)
        found: list[T] = []
        params = {"limit": _PAGE}
        while True:
            page = decoder.decode(await self._api.request("GET", kind.path(namespace=namespace), params=params))
            found += [kept for item in page.items or () if (kept := keep(item)) is not None]
            if not page.metadata.continue_:
                return found
            params["continue"] = page.metadata.continue_

    async def namespaces(self, only: str) -> list[Namespace]:
        """Answer every namespace, or one."""
        if not only:
            return await self.items(resource.NAMESPACES, Namespace)
        try:
            return [await self._api.get(resource.NAMESPACES, Namespace, name=only)]
        except ApiError as error:
            why = f"forbidden to get namespace {only}" if error.status == 403 else str(error)
            self.unread.append(Unread("namespaces", why))
            return []

    async def version(self) -> Version | None:
        """Answer what the API server is."""
        try:
            return msgspec.json.decode(await self._api.request("GET", "/version"), type=Version)
        except (ApiError, msgspec.DecodeError) as error:
            self.unread.append(Unread("version", str(error)))
            return None
