"""A cluster in memory: admission as the webhook has it, and the scheduler's state, queue, cycle and preemption."""

from __future__ import annotations

import asyncio
import base64
import json
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

import jsonpatch
import msgspec

from allocation.inventory import Card, NodeInventory
from allocation.names import SHARE_MODE_PREFIX
from allocation.settings import AllocationSettings, BindingSettings
from cluster.gpu_binding import GpuBinding
from cluster.gpu_claim import GpuClaim
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.gpu_queue import GpuQueue
from cluster.gpu_quota import GpuQuota
from cluster.metadata import ObjectMeta
from scheduler.objects import Namespace, Pod
from scheduler.patience.patience import Patience
from tests.scheduler.support.builders import Clock, lease, node, state
from tests.scheduler.support.memory_api import MemoryApi
from tests.scheduler.support.preemption_scene import Scene
from webhook.claims import UncachedClaimError
from webhook.cluster_admission import ClusterAdmission
from webhook.metrics import Metrics
from webhook.settings import WebhookSettings

if TYPE_CHECKING:
    from cluster.events import Recorder

Object = dict[str, Any]
NODES, CARDS, MEMORY, SLOTS = ("a", "b"), 2, 10_000, 4
TEAMS = ("red", "blue")
PATIENCE = 30.0
"""Seconds."""
KINDS: dict[str, tuple[str, type[Any], str]] = {
    "gpuclaims": ("set_claim", GpuClaim, "drop_claim"),
    "gpubindings": ("bindings.set", GpuBinding, "bindings.drop"),
    "gpuqueues": ("limits.set_queue", GpuQueue, "limits.drop_queue"),
    "gpuquotas": ("limits.set_gpu_quota", GpuQuota, "limits.drop_gpu_quota"),
    "namespaces": ("limits.set_namespace", Namespace, "limits.drop_namespace"),
}


class Cluster:
    """The cluster.

    Attributes:
        scene: the scheduler.
        pods: the manifests of all pods, as admission left them and with what Bindings added, by name.
        since: when each was created, on the clock of the scheduler.
        refused: how many pods admission has refused.
    """

    def __init__(self) -> None:
        self.api = MemoryApi()
        settings = AllocationSettings(bindings=BindingSettings("labelled"))
        self.admitting = ClusterAdmission(self.api, allocation=settings, settings=WebhookSettings(), metrics=Metrics())
        self._modes: dict[str, str] = {}
        clock = Clock()
        self.scene = Scene(made=state(clock=clock, settings=settings), clock=clock)
        recorder = cast("Recorder", _Silent())
        self.patience = Patience(
            self.scene.driver.cycle,
            recorder=recorder,
            patience_seconds=PATIENCE,
            idle_seconds=10**9,
            is_trusted=lambda: True,
        )
        for name in NODES:
            cards = tuple(Card(f"GPU-{name}-{index}", index, MEMORY, slots=SLOTS) for index in range(CARDS))
            self.scene.state.set_node(node(name))
            report = status_of(NodeInventory(name, cards))
            self.scene.state.agent_reports.set(GpuNodeStatus(ObjectMeta(name=name), report))
            self.scene.state.set_lease(lease(name, seconds=10**6))
        self.pods: dict[str, Object] = {}
        self.since: dict[str, float] = {}
        self.refused = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Run the informers of admission."""
        self._tasks = [asyncio.create_task(informer.run()) for informer in self.admitting.informers]
        for name in TEAMS:
            await self.put("namespaces", {"metadata": {"name": name, "labels": {}}})
        for informer in self.admitting.informers:
            await informer.synced.wait()

    async def stop(self) -> None:
        """End them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def put(self, plural: str, content: Object) -> None:
        """Create or change an object, of which admission and the scheduler hear."""
        made = self.api.put(plural, content)
        set_, kind, _ = KINDS[plural]
        attrgetter(set_)(self.scene.state)(msgspec.convert(made, kind))
        await _heard()

    async def remove(self, plural: str, name: str, namespace: str = "") -> None:
        """Delete an object, if it exists."""
        try:
            gone = self.api.get_object(plural, name, namespace)
        except KeyError:
            return
        self.api.remove(plural, name, namespace)
        _, kind, drop = KINDS[plural]
        attrgetter(drop)(self.scene.state)(msgspec.convert(gone, kind))
        await _heard()

    def share(self, uuid: str, mode: int) -> None:
        """Set how pods share a bound card: exclusive, by slices of its memory, or of its time."""
        self._modes[uuid] = str(mode)
        for name in NODES:
            annotations = {
                f"{SHARE_MODE_PREFIX}{card}": each for card, each in self._modes.items() if f"-{name}-" in card
            }
            metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}, "annotations": annotations}
            self.scene.state.set_node(node(name, metadata=metadata))

    async def create(self, pod: Object) -> str:
        """Send a pod through admission to the scheduler's queue; return the refusal, empty if it is admitted."""
        metadata = pod["metadata"]
        request = {
            "uid": "1",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "namespace": metadata["namespace"],
            "operation": "CREATE",
            "userInfo": {"username": "alice"},
            "object": pod,
        }
        body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()
        try:
            answer = self.admitting.admission.answer(body)
        except UncachedClaimError as uncached:
            answer = await self.admitting.admission.answer_after_reading(body, uncached)
        response = json.loads(answer)["response"]
        if not response["allowed"]:
            self.refused += 1
            return str(response["status"]["message"])
        admitted: Object = pod
        if "patch" in response:
            admitted = jsonpatch.apply_patch(pod, json.loads(base64.b64decode(response["patch"])))
        admitted["metadata"] |= {"uid": f"uid-{metadata['name']}", "creationTimestamp": "2026-01-01T00:00:00Z"}
        admitted["status"] = {"phase": "Pending"}
        self.pods[metadata["name"]], self.since[metadata["name"]] = admitted, self.scene.clock.now
        self.scene.driver.add(msgspec.convert(admitted, Pod))
        return ""

    async def look(self, seconds: float = 1.0) -> None:
        """Let time go by; the scheduler places what fits, and preempts."""
        self.scene.clock.now += seconds
        await self.scene.look()
        await self.patience.look()
        await self.scene.driver.settle()
        for name, running in self.scene.driver.running.items():
            shown = self.pods[name]
            shown["spec"]["nodeName"] = running.spec.node_name
            shown["metadata"]["annotations"] = dict(running.metadata.annotations)

    def end(self, name: str) -> None:
        """Let a pod end, or delete one that waits."""
        if name in self.scene.driver.running:
            self.scene.driver.end(name)
        else:
            self.scene.state.drop_pod(msgspec.convert(self.pods[name], Pod))
        del self.pods[name]

    def waiting_seconds(self, name: str) -> float:
        """How long a pod has been waiting."""
        return self.scene.clock.now - self.since[name]

    def held(self, *, by_nominations: bool) -> set[str]:
        """The cards that are held for pods that preempt, or for those that have waited too long."""
        holds = [hold for hold in self.scene.state.holds if hold.is_nomination == by_nominations]
        return {charge.uuid for hold in holds for charge in hold.charges}

    @property
    def placed(self) -> list[Object]:
        """The pods that have a node."""
        return [each for each in self.pods.values() if each["spec"].get("nodeName")]


class _Silent:
    """Records no event."""

    def record(self, *_: object, **__: object) -> None:
        """Record nothing."""


async def _heard() -> None:
    """Let watches show what has changed."""
    for _ in range(4):
        await asyncio.sleep(0)
