"""A cluster in memory: admission as the webhook has it, and the scheduler's state, queue, cycle and preemption."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import TYPE_CHECKING, Any

import jsonpatch

from allocation.inventory import Card
from allocation.names import SHARE_MODE_PREFIX, SYSTEM_NAMESPACE
from allocation.settings import AllocationSettings, BindingSettings
from scheduler.patience.patience import Patience
from tests.scheduler.model import books
from tests.scheduler.model.api import LiveApi
from tests.scheduler.model.books import Size
from tests.scheduler.model.scheduler import ModelDriver
from tests.scheduler.support.builders import Clock, state
from tests.scheduler.support.node_manifests import of_node
from tests.scheduler.support.preemption_scene import Scene
from webhook.claims import UncachedClaimError
from webhook.cluster_admission import ClusterAdmission
from webhook.metrics import Metrics
from webhook.settings import WebhookSettings

if TYPE_CHECKING:
    from scheduler.state.cluster_state import ClusterState

Object = dict[str, Any]
NODES, CARDS, MEMORY, SLOTS = ("a", "b"), 2, 10_000, 4
MODEL = "NVIDIA A100-SXM4-40GB"
MOST_PODS = 4
"""With cards, on one node."""
UUIDS = [f"GPU-{node}-{index}" for node in NODES for index in range(CARDS)]
LINKED, GBPS = "a", 300
"""The node whose cards are linked, and at how many GB/s."""
TEAMS = ("red", "blue")
TRUSTED = WebhookSettings().trusted[0]
"""A user who may choose the cards of pods."""
PATIENCE = 30.0
"""Seconds."""


class Cluster:
    """The cluster.

    Attributes:
        api: the API server, with all objects.
        scene: the scheduler.
        since: when each pod was created, on the clock of the scheduler, by its name.
        sizes: what each card has, and each MIG instance that there ever was.
    """

    def __init__(self) -> None:
        clock = Clock()
        settings = AllocationSettings(
            bindings=BindingSettings("labelled"), most_pods_per_node=MOST_PODS, isolation_policy="dynamic"
        )
        self.api = LiveApi(lambda: state(clock=clock, settings=settings))
        self.admitting = ClusterAdmission(self.api, allocation=settings, settings=WebhookSettings(), metrics=Metrics())
        self.driver = ModelDriver(self.api)
        self.scene = Scene(clock=clock, driver=self.driver)
        self.patience = Patience(
            self.driver.cycle,
            recorder=self.driver.recorder,
            patience_seconds=PATIENCE,
            idle_seconds=10**9,
            is_trusted=lambda: True,
        )
        self.since: dict[str, float] = {}
        self.sizes = {uuid: Size(MEMORY, SLOTS) for uuid in UUIDS}
        self._modes: dict[str, str] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Create nodes and namespaces, and run the informers of admission."""
        for name in NODES:
            cards = (Card(f"GPU-{name}-{index}", index, MEMORY, slots=SLOTS, model=MODEL) for index in range(CARDS))
            for plural, each in of_node(name, *cards, seconds=10**6, isolation=["none", "hami-core", "mps"]):
                for device in each.get("status", {}).get("devices", ()) if name == LINKED else ():
                    device |= {"island": "nvlink", "bandwidthGBps": GBPS}
                self.api.put(plural, each)
        for name in TEAMS:
            self.api.put("namespaces", {"metadata": {"name": name, "labels": {}}})
        self._tasks = [asyncio.create_task(informer.run()) for informer in self.admitting.informers]
        for informer in self.admitting.informers:
            await informer.synced.wait()

    async def stop(self) -> None:
        """End them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def state(self) -> ClusterState:
        """What the scheduler knows."""
        return self.api.state

    # ---- objects -----------------------------------------------------------------------------------------------------

    async def put(self, plural: str, content: Object) -> None:
        """Create or change an object, of which admission and the scheduler hear."""
        self.api.put(plural, content)
        await _heard()

    async def remove(self, plural: str, name: str, namespace: str = "") -> None:
        """Delete an object, if it exists."""
        try:
            self.api.remove(plural, name, namespace)
        except KeyError:
            return
        await _heard()

    def share(self, uuid: str, mode: int) -> None:
        """Set how pods share a bound card: exclusive, by slices of its memory, or of its time."""
        self._modes[uuid] = str(mode)
        for name in NODES:
            node = self.api.get_object("nodes", name)
            annotations = {
                f"{SHARE_MODE_PREFIX}{card}": each for card, each in self._modes.items() if f"-{name}-" in card
            }
            self.api.put("nodes", {**node, "metadata": {**node["metadata"], "annotations": annotations}})

    @property
    def leases(self) -> dict[str, str]:
        """The holder of the Lease of each card."""
        return {each.card: each.holder for each in self.state.device_leases}

    @property
    def closed(self) -> set[str]:
        """The cards that are closed by Leases of pods that have ended."""
        return self.leases.keys() - books.leased(self.placed).keys()

    def lose_lease(self, card: str) -> None:
        """Delete the Lease of a card, if it exists."""
        for each in self.state.device_leases:
            if each.card == card:
                self.api.remove("leases", each.name, SYSTEM_NAMESPACE)

    # ---- pods --------------------------------------------------------------------------------------------------------

    async def create(self, pod: Object, *, user: str = "alice") -> str:
        """Send a pod of a user through admission to the API server; return the refusal, empty if it is admitted."""
        metadata = pod["metadata"]
        request = {
            "uid": "1",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "namespace": metadata["namespace"],
            "operation": "CREATE",
            "userInfo": {"username": user},
            "object": pod,
        }
        body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()
        try:
            answer = self.admitting.admission.answer(body)
        except UncachedClaimError as uncached:
            answer = await self.admitting.admission.answer_after_reading(body, uncached)
        response = json.loads(answer)["response"]
        if not response["allowed"]:
            return str(response["status"]["message"])
        admitted: Object = pod
        if "patch" in response:
            admitted = jsonpatch.apply_patch(pod, json.loads(base64.b64decode(response["patch"])))
        self.since[metadata["name"]] = self.scene.clock.now
        self.api.put("pods", {**admitted, "status": {"phase": "Pending"}})
        return ""

    async def reconcile(self) -> None:
        """Delete the Leases of pods that have ended, and restore those that pods lack."""
        await self.driver.leases.reconcile()

    def ungate(self, name: str) -> None:
        """Remove the scheduling gates of a pod, which waits from now on."""
        pod = self.pods[name]
        self.since[name] = self.scene.clock.now
        spec = {key: value for key, value in pod["spec"].items() if key != "schedulingGates"}
        self.api.put("pods", {**pod, "spec": spec})

    async def look(self, seconds: float = 1.0) -> None:
        """Let time go by; the scheduler places what fits, and preempts."""
        self.scene.clock.now += seconds
        await self.scene.look()
        await self.patience.look()
        await self.driver.settle()
        await self.driver.request_instances()

    def end(self, name: str) -> None:
        """Let a pod end, or delete one that waits."""
        if name in self.driver.running:
            self.driver.end(name)
        else:
            self.api.remove("pods", name, self.pods[name]["metadata"]["namespace"])

    @property
    def pods(self) -> dict[str, Object]:
        """The manifests of all pods by name, as admission left them and with what Bindings added."""
        return {each["metadata"]["name"]: each for each in self.api.all("pods")}

    @property
    def gated(self) -> dict[str, Object]:
        """The pods with scheduling gates by name."""
        return {name: pod for name, pod in self.pods.items() if pod["spec"].get("schedulingGates")}

    @property
    def placed(self) -> list[Object]:
        """The pods that have a node."""
        return [each for each in self.api.all("pods") if each["spec"].get("nodeName")]

    def waiting_seconds(self, name: str) -> float:
        """How long a pod has been waiting."""
        return self.scene.clock.now - self.since[name]

    def held(self, *, by_nominations: bool) -> set[str]:
        """The cards that are held for pods that preempt, or for those that have waited too long."""
        holds = [hold for hold in self.state.holds if hold.is_nomination == by_nominations]
        return {charge.uuid for hold in holds for charge in hold.charges}


async def _heard() -> None:
    """Let watches show what has changed."""
    for _ in range(4):
        await asyncio.sleep(0)
