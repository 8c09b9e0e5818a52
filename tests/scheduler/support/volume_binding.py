"""Claims, PersistentVolumes and a volume binder on a real API server."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from allocation.request import PodRequest
from cluster.api import Api
from cluster.errors import UnreachableError
from cluster.informer import Informer
from cluster.resource import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, Resource
from scheduler.binding.volume_binder import VolumeBinder
from scheduler.binding.volume_steps import Shown
from scheduler.cycle.result import Scheduled
from scheduler.metrics.instruments import Metrics
from scheduler.objects import Node, Pod
from scheduler.volumes.bindings import ClaimKey, Match, VolumeBindings
from scheduler.volumes.objects import Claim, PersistentVolume
from tests.scheduler.support.fencing import fenced

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

NODE = "storage-node"
PATIENCE_S = 30.0
CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass")
LATE = "late"
"""The name of the class whose volumes are bound when a pod is scheduled; nothing provisions them."""
STATIC = "static"
"""The same for volumes that an administrator creates."""


class Storage:
    """Objects in one namespace, written as the administrator, and the binder of one scheduler."""

    def __init__(self, admin: Api, namespace: str) -> None:
        self.admin = admin
        self.namespace = namespace
        self.claims = Informer(admin, PERSISTENT_VOLUME_CLAIMS, Claim)
        self.volumes = Informer(admin, PERSISTENT_VOLUMES, PersistentVolume)
        self.nodes = Informer(admin, NODES, Node)
        self.pods = Informer(admin, PODS, Pod)

    def binder(self, api: Api, *, timeout_seconds: float = PATIENCE_S) -> VolumeBinder:
        """Return a binder that writes with `api`."""
        shown = Shown(
            claim=lambda key: self.claims.get(key.name, key.namespace),
            volume=self.volumes.get,
            node=self.nodes.get,
            pod=self.pods.get,
            migrated=lambda _: (),
        )
        made = VolumeBinder(
            fenced(api, timeout_seconds=10), shown=shown, metrics=Metrics(), timeout_seconds=timeout_seconds
        )
        self.claims.add_handlers(on_upsert=made.set_claim, on_delete=made.set_claim)
        self.volumes.add_handlers(on_upsert=made.set_volume, on_delete=made.set_volume)
        self.nodes.add_handlers(on_upsert=lambda *_: None, on_delete=made.drop_node)
        self.pods.add_handlers(on_upsert=made.set_pod, on_delete=made.set_pod)
        return made

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Storage]:
        """Keep the informers up to date during the block."""
        informers = (self.claims, self.volumes, self.nodes, self.pods)
        tasks = [asyncio.create_task(each.run()) for each in informers]
        try:
            for each in informers:
                await each.synced.wait()
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # ---- objects ---------------------------------------------------------------------------------------------------

    async def node(self, name: str) -> None:
        """Create a node that nothing runs on."""
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        await self.admin.create(NODES, {"metadata": metadata})
        await until(lambda: self.nodes.get(name) is not None)

    async def pod(self, name: str) -> Pod:
        """Create a pod that no scheduler binds."""
        spec = {"schedulerName": "nobody", "containers": [{"name": "main", "image": "none"}]}
        await self.admin.create(PODS, {"metadata": {"name": name}, "spec": spec}, namespace=self.namespace)
        await until(lambda: self.pods.get(name, self.namespace) is not None)
        shown = self.pods.get(name, self.namespace)
        assert shown is not None
        return shown

    async def claim(self, name: str, *, storage_class: str = LATE) -> ClaimKey:
        """Create a claim."""
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": "1Mi"}},
        }
        await self.admin.create(
            PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": name}, "spec": spec}, namespace=self.namespace
        )
        await until(lambda: self.claims.get(name, self.namespace) is not None)
        return ClaimKey(self.namespace, name)

    async def volume(
        self, name: str, *, node: str = NODE, storage_class: str = STATIC, claim: ClaimKey | None = None
    ) -> str:
        """Create a local volume of a node, and wait until it is available; with `claim` it is provisioned for it."""
        selector = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
        spec: dict[str, Any] = {
            "capacity": {"storage": "1Mi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": storage_class,
            "local": {"path": "/nowhere"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [selector]}},
        }
        if claim is not None:
            uid = (await self.read_claim(claim)).metadata.uid
            spec["claimRef"] = {"namespace": claim.namespace, "name": claim.name, "uid": uid}
        await self.admin.create(PERSISTENT_VOLUMES, {"metadata": {"name": name}, "spec": spec})
        if claim is None:
            await until(lambda: (shown := self.volumes.get(name)) is not None and shown.status.phase == "Available")
        return name

    async def read_claim(self, key: ClaimKey) -> Claim:
        """Read a claim from the API server."""
        return await self.admin.get(PERSISTENT_VOLUME_CLAIMS, Claim, name=key.name, namespace=key.namespace)

    async def read_volume(self, name: str) -> PersistentVolume:
        """Read a volume from the API server."""
        return await self.admin.get(PERSISTENT_VOLUMES, PersistentVolume, name=name)

    async def change_claim(self, key: ClaimKey, **metadata: Any) -> None:
        """Change the metadata of a claim."""
        await self.admin.merge(PERSISTENT_VOLUME_CLAIMS, {"metadata": metadata}, name=key.name, namespace=key.namespace)

    async def delete(self, resource: Resource, name: str, *, namespace: str = "") -> None:
        """Delete an object at once."""
        body = {"gracePeriodSeconds": 0}
        await self.admin.request("DELETE", resource.path(namespace=namespace, name=name), body=body)


def scheduled(*, matches: dict[ClaimKey, str] | None = None, provisioned: tuple[ClaimKey, ...] = ()) -> Scheduled:
    """Return the scheduling result for a pod without GPU on `NODE`."""
    bindings = VolumeBindings(tuple(Match(key, name) for key, name in (matches or {}).items()), provisioned)
    return Scheduled(NODE, PodRequest(()), None, "", volumes=bindings)


async def create_classes(admin: Api) -> None:
    """Create the classes `LATE` and `STATIC`."""
    for name, provisioner in ((LATE, "test.example/none"), (STATIC, "kubernetes.io/no-provisioner")):
        body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
        await admin.create(CLASSES, body)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until an informer shows what a test waits for."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 -- an informer has no event for each condition of a test
            await asyncio.sleep(0.01)


class Cut(Api):
    """An API client whose first `losses` patches are carried out while their responses are lost."""

    def __init__(self, api: Api, *, losses: int) -> None:
        super().__init__(api._connection)
        self.losses = losses

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Send a request."""
        body = await super().request(method, path, **how)
        if method == "PATCH" and self.losses:
            self.losses -= 1
            raise UnreachableError("the connection was cut")
        return body
