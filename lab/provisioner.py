"""`python -m lab.provisioner`: local volumes for the lab's StorageClass `tranche-lab-local`.

Like the provisioner of a real cluster, it creates a PersistentVolume once a claim names the node that a scheduler
selected, and deletes it after its claim; kube-controller-manager binds the two. A volume is a folder below the lab's
own, and belongs to one node. If the selected node does not exist, the selection is removed from the claim, so that the
scheduler chooses another node.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import shutil
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cluster import logs
from cluster.api import Api
from cluster.connect import connect
from cluster.errors import ClusterError, ConflictError, NotFoundError
from cluster.informer import Informer
from cluster.logs import LogSettings
from cluster.metadata import ObjectMeta
from cluster.resource import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

log = logging.getLogger("lab.provisioner")

STORAGE_CLASS = "tranche-lab-local"
_PROVISIONER = "tranche-lab/local"
_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_RETRY_SECONDS = 1.0


class _Meta(ObjectMeta, rename="camel"):
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None


class _ClaimSpec(msgspec.Struct, rename="camel"):
    storage_class_name: str | None = None
    volume_name: str = ""
    access_modes: list[str] = []
    resources: dict[str, Any] = {}


class _Claim(msgspec.Struct):
    metadata: _Meta
    spec: _ClaimSpec


class _VolumeStatus(msgspec.Struct):
    phase: str = ""


class _Volume(msgspec.Struct):
    metadata: _Meta
    status: _VolumeStatus = msgspec.field(default_factory=_VolumeStatus)


class Provisioner:
    """Creates and deletes the volumes of one class."""

    def __init__(self, api: Api, folder: Path) -> None:
        """Keep the data of each volume in a folder of its own below `folder`."""
        self._api = api
        self._folder = folder
        self._work: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Provision until cancelled."""
        async with asyncio.TaskGroup() as group:
            claims = Informer(self._api, PERSISTENT_VOLUME_CLAIMS, _Claim, on_upsert=self._on_claim)
            volumes = Informer(self._api, PERSISTENT_VOLUMES, _Volume, on_upsert=self._on_volume)
            group.create_task(claims.run())
            group.create_task(volumes.run())

    def _on_claim(self, claim: _Claim, _old: _Claim | None) -> None:
        is_ours = claim.spec.storage_class_name == STORAGE_CLASS and not claim.metadata.deletion_timestamp
        if is_ours and not claim.spec.volume_name and _SELECTED_NODE in claim.metadata.annotations:
            self._start(partial(self._provision, claim), f"claim {claim.metadata.namespace}/{claim.metadata.name}")

    def _on_volume(self, volume: _Volume, _old: _Volume | None) -> None:
        meta = volume.metadata
        is_ours = meta.annotations.get(_PROVISIONED_BY) == _PROVISIONER and not meta.deletion_timestamp
        if is_ours and volume.status.phase == "Released":
            self._start(partial(self._delete, meta.name), f"PersistentVolume {meta.name}")

    def _start(self, work: Callable[[], Coroutine[Any, Any, None]], what: str) -> None:
        async def carry_out() -> None:
            while True:
                try:
                    return await work()
                except ClusterError as error:
                    log.warning("%s: %s", what, error)
                    if not error.is_doubtful:
                        return None
                await asyncio.sleep(_RETRY_SECONDS)

        task = asyncio.create_task(carry_out())
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _provision(self, claim: _Claim) -> None:
        """Create the volume of a claim for its selected node."""
        meta, node = claim.metadata, claim.metadata.annotations[_SELECTED_NODE]
        try:
            await self._api.request("GET", NODES.path(name=node))
        except NotFoundError:
            await self._reject(claim)
            return
        name = f"pvc-{meta.uid}"
        hosts = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
        spec = {
            "capacity": claim.spec.resources.get("requests", {}),
            "accessModes": claim.spec.access_modes,
            "storageClassName": STORAGE_CLASS,
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid},
            "hostPath": {"path": str(self._folder / name), "type": "DirectoryOrCreate"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [hosts]}},
        }
        body = {"metadata": {"name": name, "annotations": {_PROVISIONED_BY: _PROVISIONER}}, "spec": spec}
        try:
            await self._api.create(PERSISTENT_VOLUMES, body)
        except ConflictError:  # created when the claim was seen before
            return
        log.info("claim %s/%s: PersistentVolume %s for node %s", meta.namespace, meta.name, name, node)

    async def _reject(self, claim: _Claim) -> None:
        """Remove the selection of a node that does not exist, as external provisioners do."""
        meta = claim.metadata
        log.info("claim %s/%s: its selected node does not exist", meta.namespace, meta.name)
        change = {"resourceVersion": meta.resource_version, "annotations": {_SELECTED_NODE: None}}
        await self._api.merge(PERSISTENT_VOLUME_CLAIMS, {"metadata": change}, name=meta.name, namespace=meta.namespace)

    async def _delete(self, name: str) -> None:
        """Delete a volume whose claim was deleted, with its data."""
        await asyncio.to_thread(shutil.rmtree, self._folder / name, ignore_errors=True)
        await self._api.request("DELETE", PERSISTENT_VOLUMES.path(name=name))


async def _serve(kubeconfig: str, folder: Path) -> None:
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with connect(program="tranche-lab", kubeconfig=kubeconfig) as connection:
        await Provisioner(Api(connection), folder).run()


def main() -> int:
    """Provision until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m lab.provisioner", description=__doc__)
    parser.add_argument("--kubeconfig", required=True, help="kubeconfig with the identity of this process")
    parser.add_argument("folder", type=Path, help="folder for the data of the volumes")
    arguments = parser.parse_args()
    logs.set_up(LogSettings())
    try:
        asyncio.run(_serve(arguments.kubeconfig, arguments.folder))
    except asyncio.CancelledError:
        return 0
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
