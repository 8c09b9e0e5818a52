"""Admission as both processes build it: each kind of object that it asks for reaches it from the API server."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import jsonpatch
import pytest

from allocation.names import APP_NAME, APP_OWNER, CLAIM, ISOLATION
from allocation.settings import AllocationSettings, BindingSettings
from tests.scheduler.support.memory_api import MemoryApi
from webhook.claims import UncachedClaimError
from webhook.cluster_admission import ClusterAdmission
from webhook.metrics import Metrics
from webhook.settings import WebhookSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TEAM = "team"


@pytest.fixture
def api() -> MemoryApi:
    """An API server with an opted-in namespace."""
    made = MemoryApi()
    made.put("namespaces", {"metadata": {"name": TEAM, "labels": {"gpu.scheduling/injection": "enabled"}}})
    return made


@asynccontextmanager
async def admitting(api: MemoryApi, **settings: Any) -> AsyncIterator[ClusterAdmission]:
    """Run the informers of an admission."""
    made = ClusterAdmission(
        api, allocation=AllocationSettings(**settings), settings=WebhookSettings(), metrics=Metrics()
    )
    tasks = [asyncio.create_task(informer.run()) for informer in made.informers]
    try:
        for informer in made.informers:
            await asyncio.wait_for(informer.synced.wait(), timeout=5)
        await made.listed()
        yield made
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def admitted(made: ClusterAdmission, *, gpu: int = 1, **metadata: Any) -> dict[str, Any]:
    """Send a pod that asks for cards; return it as admission leaves it, or the refusal as `message`."""
    limits = {"nvidia.com/gpu": str(gpu)} if gpu else {}
    pod = {
        "metadata": {"name": "p", "namespace": TEAM, **metadata},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
    }
    request = {
        "uid": "1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "namespace": TEAM,
        "operation": "CREATE",
        "userInfo": {"username": "alice"},
        "object": pod,
    }
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()
    await asyncio.sleep(0)
    try:
        answer = made.admission.answer(body)
    except UncachedClaimError as uncached:
        answer = await made.admission.answer_after_reading(body, uncached)
    response = json.loads(answer)["response"]
    if not response["allowed"]:
        return {"message": response["status"]["message"]}
    patched: dict[str, Any] = jsonpatch.apply_patch(pod, json.loads(base64.b64decode(response["patch"])))
    return patched


def limit(pod: dict[str, Any], name: str) -> str | None:
    """Return a limit of the pod's container."""
    found: str | None = pod["spec"]["containers"][0]["resources"]["limits"].get(f"nvidia.com/{name}")
    return found


async def test_resource_quotas_are_known(api: MemoryApi) -> None:
    """A pod that not even an empty namespace could have is refused."""
    spec = {"hard": {"limits.nvidia.com/gpu": "0"}}
    api.put("resourcequotas", {"metadata": {"name": "none", "namespace": TEAM}, "spec": spec})
    async with admitting(api) as made:
        assert "ResourceQuota none" in (await admitted(made))["message"]


async def test_gpu_quotas_are_known(api: MemoryApi) -> None:
    """Their defaults are filled in."""
    spec = {"single": {"defaults": {"nvidia.com/gpumem": 2000}}}
    api.put("gpuquotas", {"metadata": {"name": "q", "namespace": TEAM}, "spec": spec})
    async with admitting(api) as made:
        assert limit(await admitted(made), "gpumem") == "2000"


async def test_claims_are_known(api: MemoryApi) -> None:
    """The claim says how many cards there are, whether the copy has it or it must be read."""
    claim = {"metadata": {"name": "three", "namespace": TEAM}, "spec": {"devices": {"count": 3}}}
    async with admitting(api) as made:
        api.late.add("gpuclaims")
        api.put("gpuclaims", claim)
        assert limit(await admitted(made, gpu=0, annotations={CLAIM: "three"}), "gpu") == "3"
    async with admitting(api) as made:
        api.remove("gpuclaims", "three", TEAM)  # the copy has it still
        assert limit(await admitted(made, gpu=0, annotations={CLAIM: "three"}), "gpu") == "3"


async def test_queues_and_namespaces_are_known(api: MemoryApi) -> None:
    """A queue that the namespace names says what its pods require, and one for other namespaces refuses the pod."""
    spec = {"namespaceSelector": {}, "defaultResreq": "cpu=1,mem=1g,gpu=2"}
    api.put("gpuqueues", {"metadata": {"name": "research"}, "spec": spec})
    api.put("gpuqueues", {"metadata": {"name": "others"}, "spec": {"namespaceSelector": {"matchLabels": {"a": "b"}}}})
    async with admitting(api) as made:
        refused = await admitted(made, labels={"gpu.scheduling/queue": "others"})
        assert "others" in refused["message"]
        api.put("namespaces", {"metadata": {"name": TEAM, "labels": {"a": "b"}}})
        for _ in range(5):
            await asyncio.sleep(0)
        assert "message" not in await admitted(made, labels={"gpu.scheduling/queue": "others"})


async def test_the_isolation_of_a_namespace_is_known(api: MemoryApi) -> None:
    """Its label decides for pods that choose none; another label counts for equal pods from then on."""
    labels = {"gpu.scheduling/injection": "enabled"}
    api.put("namespaces", {"metadata": {"name": TEAM, "labels": {**labels, ISOLATION: "cuda"}}})
    async with admitting(api) as made:
        assert (await admitted(made))["metadata"]["annotations"] == {ISOLATION: "cuda"}
        api.put("namespaces", {"metadata": {"name": TEAM, "labels": {**labels, ISOLATION: "mps"}}})
        for _ in range(5):
            await asyncio.sleep(0)
        assert (await admitted(made))["metadata"]["annotations"] == {ISOLATION: "mps"}


@pytest.mark.parametrize(("mode", "memory"), [("labelled", "4096"), ("off", None)])
async def test_bindings_are_known_if_they_count(api: MemoryApi, mode: Any, memory: str | None) -> None:
    """The memory of the application's card is that of the binding."""
    spec = {"uuid": "GPU-0", "appName": "render", "podSelector": {}, "memory": "4Gi"}
    api.put("gpubindings", {"metadata": {"name": "b"}, "spec": spec})
    async with admitting(api, bindings=BindingSettings(mode)) as made:
        pod = await admitted(made, labels={APP_NAME: "render", APP_OWNER: "alice"})
        assert limit(pod, "gpumem") == memory


async def test_reviews_are_counted(api: MemoryApi) -> None:
    """In the metrics that were given."""
    metrics = Metrics()
    made = ClusterAdmission(api, allocation=AllocationSettings(), settings=WebhookSettings(), metrics=metrics)
    await admitted(made)
    assert sum(sample.value for family in metrics.registry.collect() for sample in family.samples) > 0
