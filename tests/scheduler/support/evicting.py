"""An API server with a leader that evicts, and the pods of a test."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from allocation.fairness.queue_spec import QueueKey
from cluster.api import STRATEGIC_MERGE_PATCH, Api
from cluster.election import Term
from cluster.errors import NotFoundError
from cluster.events import Recorder
from cluster.resource import EVENTS, POD_DISRUPTION_BUDGETS, PODS
from scheduler.fence import Fence
from scheduler.metrics.labels import EvictionOutcome
from scheduler.objects import Pod
from scheduler.preemption.disruption_budgets import Budget
from scheduler.preemption.eligibility import EligiblePod
from scheduler.preemption.evictor import Evictor, Nomination
from tests.scheduler.support.fencing import fenced

OURS, THEIRS = "evictor-ours", "evictor-theirs"
"""The namespaces of the preemptors and of the victims."""
NODE, GRACE_S = "evictor", 25
PATIENCE_S = 30


class EvictionServer:
    """The API as the scheduler and as an administrator, and the pods of a test."""

    def __init__(self, api: Api, admin: Api) -> None:
        self.api = api
        self.admin = admin
        self.token = ""

    async def lead(self) -> str:
        """Begin another term, wait until the API server accepts Evictions with its token only, and return the token."""
        fence = Fence(self.api)
        term = Term(await fence.last_epoch() + 1, "evictor", follows_another=False)
        await fence.raise_for(term)
        self.token = term.token
        preemptor, victim = await self.pod("probe"), await self.victim("probe")
        async with asyncio.timeout(PATIENCE_S):
            while (outcome := (await self.evict(preemptor, victim))[0]) is not EvictionOutcome.EVICTED:
                assert outcome is EvictionOutcome.REFUSED
        for namespace in (OURS, THEIRS):
            await self.delete("probe", namespace=namespace)
        return self.token

    async def pod(self, name: str, *, namespace: str = OURS, labels: dict[str, str] | None = None) -> Pod:
        """Create a pod without node, and return it as the scheduler would see it."""
        return await self._create(name, namespace, labels or {}, {})

    async def victim(
        self, name: str, *, labels: dict[str, str] | None = None, is_guarded: bool = False, violates: bool = False
    ) -> EligiblePod:
        """Create a pod that runs on the node, and return it as a victim."""
        spec = {"nodeName": NODE, "terminationGracePeriodSeconds": GRACE_S}
        made = await self._create(name, THEIRS, labels or {}, spec)
        path = PODS.path(namespace=THEIRS, name=name, subresource="status")
        body = {"status": {"phase": "Running"}}
        await self.admin.request("PATCH", path, body=body, content_type=STRATEGIC_MERGE_PATCH)
        budget = Budget(THEIRS, name, allowed=1) if is_guarded else None
        return EligiblePod(made, QueueKey(namespace=THEIRS), budget, violates=violates)

    async def _create(self, name: str, namespace: str, labels: dict[str, str], spec: dict[str, Any]) -> Pod:
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels},
            "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "none"}], **spec},
        }
        return msgspec.json.decode(await self.admin.create(PODS, body, namespace=namespace), type=Pod)

    async def budget(self, name: str, **labels: str) -> None:
        """Create a budget that permits no Eviction of the pods with these labels."""
        body = {
            "apiVersion": POD_DISRUPTION_BUDGETS.api_version,
            "kind": POD_DISRUPTION_BUDGETS.kind,
            "metadata": {"name": name},
            "spec": {"minAvailable": "100%", "selector": {"matchLabels": labels}},
        }
        await self.admin.create(POD_DISRUPTION_BUDGETS, body, namespace=THEIRS)

    async def evict(
        self, preemptor: Pod, *victims: EligiblePod, api: Api | None = None, token: str = ""
    ) -> tuple[EvictionOutcome, list[EligiblePod]]:
        """Evict victims for a pod as the leader, and return once the events are written."""
        recorder = Recorder(self.api, component="tranche", instance="test")
        made = self.evictor(recorder, api=api, token=token)
        writing = asyncio.create_task(recorder.run())
        result = await made.evict([Nomination(preemptor, NODE, victims)])
        await recorder.drain(PATIENCE_S)
        writing.cancel()
        return result

    def evictor(self, recorder: Recorder | None = None, *, api: Api | None = None, token: str = "") -> Evictor:
        """Return an evictor of the leader, or with another token."""
        recorder = recorder or Recorder(self.api, component="tranche", instance="test")
        return Evictor(fenced(api or self.api, token=token or self.token, timeout_seconds=10), recorder=recorder)

    async def read(self, name: str, *, namespace: str = THEIRS) -> dict[str, Any]:
        """Read a pod with all its fields."""
        body: dict[str, Any] = msgspec.json.decode(
            await self.admin.request("GET", PODS.path(namespace=namespace, name=name))
        )
        return body

    async def lives(self, name: str) -> bool:
        """Return whether no client has begun to delete a victim."""
        return "deletionTimestamp" not in (await self.read(name))["metadata"]

    async def nominated(self, name: str) -> str:
        """Return the nominated node of a pod of ours."""
        return (await self.admin.get(PODS, Pod, name=name, namespace=OURS)).status.nominated_node_name

    async def events(self, namespace: str) -> dict[str, list[str]]:
        """Return the notes of the events by reason."""
        body = await self.admin.request("GET", EVENTS.path(namespace=namespace))
        notes: dict[str, list[str]] = {}
        for each in msgspec.json.decode(body)["items"]:
            if each.get("reportingController") == "tranche":
                notes.setdefault(each["reason"], []).append(each["note"])
        return notes

    async def delete(self, name: str, *, namespace: str) -> None:
        """Delete a pod at once, and wait until it is gone."""
        path = PODS.path(namespace=namespace, name=name)
        await self.admin.request("DELETE", path, body={"gracePeriodSeconds": 0})
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    await self.read(name, namespace=namespace)
                except NotFoundError:
                    return
                await asyncio.sleep(0.02)

    async def clear(self) -> None:
        """Delete everything that a test created."""
        for namespace in (OURS, THEIRS):
            for resource in (POD_DISRUPTION_BUDGETS, PODS, EVENTS):
                path = resource.path(namespace=namespace)
                await self.admin.request("DELETE", path, body={"gracePeriodSeconds": 0})
