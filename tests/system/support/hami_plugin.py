"""`python -m tests.system.support.hami_plugin`: simulates HAMi's device plugin, and the kubelet's count of its devices.

By HAMi's rules 1.1 and 1.2 it registers its cards in a node annotation, in no particular order, and serves the
pod that the node's lock names, container by container. Each step is a write of its own: it removes an entry from the
string, sets the phase, and removes the lock. When it was killed between two steps it continues where it stopped, except
for the lock of a pod whose phase says that it was served: HAMi never looks at that lock again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
from typing import TYPE_CHECKING, Any

import msgspec

from cluster.api import Api
from cluster.connect import connect
from cluster.errors import ApiError, ClusterError, ConflictError, NotFoundError
from cluster.informer import Informer
from cluster.metadata import ObjectMeta
from cluster.resource import NODES, PODS

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger(__name__)

LOCK, PHASE = "hami.io/mutex.lock", "hami.io/bind-phase"
TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
REGISTER = "hami.io/node-nvidia-register"
SPLIT, CARDS, MEMORY_MIB = 10, 2, 40960
MODEL = "NVIDIA A100-SXM4-40GB"
FORMS = ("json", "seven", "nine")


class _Meta(ObjectMeta, rename="camel"):
    annotations: dict[str, str] = {}


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Object(msgspec.Struct):
    """A node or a pod."""

    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)


def card(node: str, index: int) -> str:
    """Return the UUID of a card."""
    return f"GPU-{node}-{index}"


def register(node: str, form: str) -> str:
    """Return the register annotation of a node in one of HAMi's forms."""
    order = random.sample(range(CARDS), CARDS)
    if form == "json":
        cards = [
            {
                "id": card(node, index),
                **({"index": index} if index else {}),
                "count": SPLIT,
                "devmem": MEMORY_MIB,
                "devcore": 100,
                "type": MODEL,
                "mode": "hami-core",
                "health": True,
                "customInfo": {},
            }
            for index in order
        ]
        return json.dumps(cards)
    more = {"seven": "", "nine": ",{index},hami-core"}[form]
    # The form without an index implies it: the position of a card is its index.
    return "".join(
        f"{card(node, index)},{SPLIT},{MEMORY_MIB},100,NVIDIA-{MODEL},0,true{more.format(index=index)}:"
        for index in (order if form == "nine" else range(CARDS))
    )


class Plugin:
    """The plugin of one node."""

    def __init__(self, api: Api, node: str, form: str) -> None:
        self._api = api
        self._node = node
        self._form = form
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Register the cards and serve pods until cancelled."""
        nodes = Informer(self._api, NODES, _Object, on_upsert=self._wake, selectors={"fieldSelector": self._named()})
        pods = Informer(
            self._api, PODS, _Object, on_upsert=self._wake, selectors={"fieldSelector": f"spec.nodeName={self._node}"}
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(self._register())
            group.create_task(nodes.run())
            group.create_task(pods.run())
            group.create_task(self._serve())

    def _named(self) -> str:
        return f"metadata.name={self._node}"

    def _wake(self, _new: object, _old: object) -> None:
        self._changed.set()

    async def _register(self) -> None:
        count = {"nvidia.com/gpu": str(CARDS * SPLIT)}
        body = {"status": {"capacity": count, "allocatable": count}}
        await self._api.merge(NODES, body, name=self._node, subresource="status")
        while True:
            await self._annotate_node({REGISTER: register(self._node, self._form)})
            await asyncio.sleep(30)

    async def _serve(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                while await self._step():
                    pass
            except ConflictError:
                self._changed.set()
            except ClusterError as error:
                log.warning("node %s: %s", self._node, error)
                await asyncio.sleep(0.2)
                self._changed.set()

    async def _step(self) -> bool:
        """Do the next step for the pod that the lock names; return whether there was one."""
        node = await self._api.get(NODES, _Object, name=self._node)
        lock = node.metadata.annotations.get(LOCK, "")
        if lock.count(",") != 2:
            return False
        _, namespace, name = lock.split(",")
        try:
            pod = await self._api.get(PODS, _Object, name=name, namespace=namespace)
        except NotFoundError:
            return False
        if pod.spec.node_name != self._node or pod.metadata.annotations.get(PHASE) != "allocating":
            return False
        left = pod.metadata.annotations[TO_ALLOCATE]
        if "NVIDIA" in left:
            entries = left.split(";")
            position = next(index for index, entry in enumerate(entries) if "NVIDIA" in entry)
            served, entries[position] = entries[position], ""
            await self._annotate_pod(pod, {TO_ALLOCATE: ";".join(entries)})
            log.info("serves %s %d %s", pod.metadata.uid, position, served)  # once, also where the write is repeated
            return True
        await self._annotate_pod(pod, {PHASE: "success"})
        await self._release(lock)
        return True

    async def _release(self, lock: str) -> None:
        while True:
            node = await self._api.get(NODES, _Object, name=self._node)
            if node.metadata.annotations.get(LOCK, "").split(",")[1:] != lock.split(",")[1:]:
                return None
            try:
                return await self._annotate_node({LOCK: None}, version=node.metadata.resource_version)
            except ConflictError:
                continue

    async def _annotate_node(self, annotations: dict[str, str | None], *, version: str = "") -> None:
        metadata: dict[str, Any] = {"annotations": annotations}
        if version:
            metadata["resourceVersion"] = version
        await self._api.merge(NODES, {"metadata": metadata}, name=self._node)

    async def _annotate_pod(self, pod: _Object, annotations: dict[str, str]) -> None:
        metadata = {"uid": pod.metadata.uid, "annotations": annotations}
        try:
            await self._api.merge(
                PODS, {"metadata": metadata}, name=pod.metadata.name, namespace=pod.metadata.namespace
            )
        except ApiError as error:
            if error.status != 409:
                raise


async def _run(kubeconfig: str, nodes: Sequence[str]) -> None:
    async with (
        connect(program="tranche-hami-plugin", kubeconfig=kubeconfig) as connection,
        asyncio.TaskGroup() as group,
    ):
        for position, node in enumerate(nodes):
            group.create_task(Plugin(Api(connection), node, FORMS[position % len(FORMS)]).run())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.system.support.hami_plugin", description=__doc__)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("nodes", nargs="+")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    asyncio.run(_run(arguments.kubeconfig, arguments.nodes))
