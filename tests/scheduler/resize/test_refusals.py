"""What else decides about a pod's size keeps it: claims, bindings, gangs, MIG, plugins, queues, quotas and holds."""

from __future__ import annotations

from typing import Any

import pytest

from allocation.fractions import READY
from allocation.inventory import Card
from allocation.names import ALLOCATION, APP_NAME, APP_OWNER, CLAIM, GANG, GANG_MIN_MEMBERS, QUEUE
from allocation.settings import BindingSettings
from allocation.wire.resize_record import decode_wish
from scheduler.api import adjustment
from tests.allocation.support.mig_cards import instance, mig_card
from tests.scheduler.support.resizing import CARD, Resizing, resizing
from tests.scheduler.support.terms import NAMESPACE

LARGER = '{"main":{"gpumem":200}}'
APP = {APP_NAME: "render", APP_OWNER: "alice"}


async def refused(cluster: Resizing, name: str, words: str, *, reason: str = "ResizeRefused") -> None:
    """Wish a larger size for a pod, and wait until it is refused with these words; nothing is charged for it."""
    before, charged = cluster.annotation(name, ALLOCATION), cluster.charged(name)
    cluster.wish(name, LARGER)
    await cluster.event(reason, words)
    assert (cluster.annotation(name, ALLOCATION), cluster.charged(name)) == (before, charged)


async def test_a_claim_says_what_its_pod_has(cluster: Resizing) -> None:
    """It never changes, and another pod may share it."""
    devices = {"count": 1, "exclusivity": "Shared", "memoryMiB": 100}
    cluster.api.put("gpuclaims", {"metadata": {"name": "one", "namespace": NAMESPACE}, "spec": {"devices": devices}})
    async with resizing(cluster):
        cluster.pod("p", gpu=0, memory=None, annotations={CLAIM: "one"})
        # The webhook writes this for a pod with a claim.
        limits = {"nvidia.com/gpu": "1"}
        shown = cluster.shown("p")
        shown["spec"]["containers"][0]["resources"] = {"limits": limits, "requests": limits}
        cluster.api.put("pods", shown)
        await cluster.placed("p")
        cluster.report("p", observed=0, container="first")
        await refused(cluster, "p", "GpuClaim one says what it has of each card")


async def test_bindings_say_what_the_pods_of_an_application_have(cluster: Resizing) -> None:
    """As long as they count at all."""
    binding = {"metadata": {"name": "b"}, "spec": {"uuid": CARD, "appName": "render", "podSelector": {}}}
    cluster.api.put("gpubindings", binding)
    async with resizing(cluster, bindings=BindingSettings("labelled")):
        await cluster.runs("p", 100, labels=APP)
        await refused(cluster, "p", "GPUBindings say what its application has")


async def test_a_gang_that_waits_is_not_resized(cluster: Resizing) -> None:
    """One of its pods has ended, and its successor has no node yet."""
    gang = {GANG: "job", GANG_MIN_MEMBERS: "2"}
    async with resizing(cluster):
        for name in ("p", "q"):
            cluster.pod(name, memory=100, annotations=gang)
        await cluster.placed("p")
        await cluster.placed("q")
        cluster.report("p", observed=0, container="first")
        cluster.end("q")
        await cluster.until(lambda: "uid-q" not in cluster.term.state.running, "end of q")
        await refused(cluster, "p", "its gang default/job waits for nodes")


async def test_the_size_of_a_mig_instance_is_fixed() -> None:
    """Whatever is free on its card."""
    cluster = Resizing()
    cluster.node("n0", mig_card(0), instance(0, "1g.5gb", 0))
    async with resizing(cluster):
        cluster.pod("p", memory=4000, annotations={"nvidia.com/vgpu-mode": "mig"})
        await cluster.placed("p")
        cluster.report("p", observed=0, container="first")
        cluster.wish("p", '{"main":{"gpumem":4001}}')
        await cluster.event("ResizeRefused", "is a MIG instance, whose size is fixed")


async def test_hamis_plugin_gives_a_pod_its_size_once() -> None:
    """It sets the limits when it starts the container."""
    cluster = Resizing()
    cluster.served_by_hami("h0")
    async with resizing(cluster):
        cluster.pod("p", memory=100)
        await cluster.placed("p")
        cluster.report("p", observed=0, container="first")
        await refused(cluster, "p", "HAMi's device plugin serves node h0")


async def test_kai_gpu_fractioning_reads_the_limits_of_a_pod_once() -> None:
    """Its containers would keep theirs through any restart, also on a node that has another delivery by then."""
    cluster, words = Resizing(), "by the annotations that it had when its sandbox was created"
    ready = [{"type": READY, "status": "True"}]
    cluster.node("n0", delivery={"mode": "nvfractions"}, conditions=ready)
    async with resizing(cluster):
        await cluster.runs("p", 100)
        await cluster.until(lambda: "uid-p" in cluster.term.state.running, "the pod")
        asked = adjustment.answer(cluster.term.state, cluster.term.state.running["uid-p"], decode_wish(LARGER))
        assert (asked.reason, words in asked.message) == ("ResizeRefused", True)
        cluster.node("n0", delivery={"mode": "cdi"})
        await cluster.until(lambda: cluster.term.state.deliveries.of("n0") == "cdi", "the report")
        await refused(cluster, "p", words)


async def test_pods_of_other_schedulers_are_left_alone(cluster: Resizing) -> None:
    """Their allocation counts, and another scheduler decides."""
    async with resizing(cluster):
        await cluster.runs("p", 100)
        shown = cluster.shown("p")
        cluster.api.put("pods", {**shown, "metadata": {**shown["metadata"], "name": "q", "uid": "uid-q"}})
        other = cluster.shown("q")
        other["spec"] = {**other["spec"], "schedulerName": "other"}
        cluster.api.put("pods", other)
        await cluster.until(lambda: cluster.term.ledger.reservation("uid-q") is not None, "the other pod")
        await refused(cluster, "q", "its schedulerName is other")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"single": {"limits": {"nvidia.com/gpumem": 150}}}, "GpuQuota q: spec.single.limits"),
        ({"total": {"limits": {"nvidia.com/gpumem": 150}}}, "GpuQuota q limits nvidia.com/gpumem to 150: 50 are left"),
    ],
)
async def test_a_quota_limits_what_grows(cluster: Resizing, spec: dict[str, Any], words: str) -> None:
    """The size of one pod, or the sum of all; a smaller size is possible all the same."""
    async with resizing(cluster):
        await cluster.runs("p", 100)
        cluster.api.put("gpuquotas", {"metadata": {"name": "q", "namespace": NAMESPACE}, "spec": spec})
        await cluster.until(lambda: bool(cluster.term.state.quotas.specs(NAMESPACE)), "quota")
        await refused(cluster, "p", words, reason="ScalingQuotaExceeded")
        cluster.wish("p", '{"main":{"gpumem":150}}')
        await cluster.has("p", 150)


async def test_cores_without_a_number_are_not_limited_so_they_are_refused(cluster: Resizing) -> None:
    """As for a new pod, where a quota limits cores."""
    spec = {"total": {"limits": {"nvidia.com/gpucores": 100}}}
    async with resizing(cluster):
        await cluster.runs("p", 100)
        cluster.api.put("gpuquotas", {"metadata": {"name": "q", "namespace": NAMESPACE}, "spec": spec})
        await cluster.until(lambda: bool(cluster.term.state.quotas.specs(NAMESPACE)), "quota")
        await refused(cluster, "p", "nothing would limit it")
        cluster.wish("p", '{"main":{"gpumem":200,"gpucores":10}}')
        await cluster.has("p", 200)


async def test_the_queue_that_pays_limits_what_grows(cluster: Resizing) -> None:
    """Its limits, and a queue that takes nothing any more; a smaller size is possible all the same."""
    spec: dict[str, Any] = {"namespaceSelector": {}, "limits": {"nvidia.com/gpumem": 150}}
    cluster.api.put("gpuqueues", {"metadata": {"name": "research"}, "spec": spec})
    async with resizing(cluster):
        await cluster.runs("p", 100, labels={QUEUE: "research"})
        await refused(cluster, "p", "GpuQueue research limits", reason="ScalingQuotaExceeded")
        cluster.api.put("gpuqueues", {"metadata": {"name": "research"}, "spec": {**spec, "suspended": True}})
        cluster.wish("p", '{"main":{"gpumem":120}}')
        await cluster.event("ResizeRefused", "GpuQueue research")
        cluster.wish("p", '{"main":{"gpumem":50}}')
        await cluster.has("p", 50)


async def test_cards_that_are_held_for_a_pod_are_not_free(cluster: Resizing) -> None:
    """One that has waited too long gets them first."""
    async with resizing(cluster, patience_seconds=0.05, hold_idle_seconds=20.0):
        await cluster.runs("p", 100)
        cluster.node("n0", count=1)
        cluster.pod("waits", memory=950, namespace="other")
        await cluster.event("CardsHeld")
        await refused(cluster, "p", "for the pod", reason="ScalingQuotaExceeded")


async def test_a_whole_card_stays_whole(cluster: Resizing) -> None:
    """The amounts limit its container, up to the capacity of the card."""
    async with resizing(cluster):
        await cluster.runs("p", 1000)
        record = cluster.annotation("p", ALLOCATION)
        assert record is not None
        shown = cluster.shown("p")
        shown["metadata"]["annotations"][ALLOCATION] = record.replace('"cores":0', '"cores":0,"whole":true')
        cluster.api.put("pods", shown)
        cluster.wish("p", '{"main":{"gpumem":500}}')
        await cluster.has("p", 500)
        cluster.pod("next", memory=100, annotations={"nvidia.com/use-gpuuuid": CARD})
        await cluster.waits("next", "no available node")
        cluster.wish("p", '{"main":{"gpumem":1001}}')
        await cluster.event("ScalingQuotaExceeded", "1000 MiB and 100 %")


async def test_an_answer_is_what_the_wish_gets(cluster: Resizing) -> None:
    """The API answers by the same check, and changes nothing."""
    async with resizing(cluster):
        await cluster.runs("p", 100)
        await cluster.until(lambda: "uid-p" in cluster.term.state.running, "running pod")
        queries, used = cluster.term.queries, cluster.term.ledger.used.copy()
        fits = queries.adjust(NAMESPACE, "p", adjustment.read_wish(b'{"main":{"gpumem":900}}'))
        assert fits is not None
        assert (fits.fits, fits.remaining[CARD].memory_mib, fits.remaining[CARD].cores) == (True, 100, 1000)
        for body, reason in ((b'{"main":{"gpumem":1001}}', "ScalingQuotaExceeded"), (b'{"x":{}}', "ResizeRefused")):
            refusal = queries.adjust(NAMESPACE, "p", adjustment.read_wish(body))
            assert refusal is not None
            assert (refusal.fits, refusal.reason) == (False, reason)
        same = queries.adjust(NAMESPACE, "p", adjustment.read_wish(b"{}"))
        assert same is not None
        assert (same.fits, same.remaining[CARD].memory_mib) == (True, 900)
        assert queries.adjust(NAMESPACE, "gone", {}) is None
        assert (cluster.term.ledger.used == used).all()


async def test_compute_in_tflops_stays_as_it_is() -> None:
    """The pod's memory can change."""
    cluster = Resizing()
    cluster.node("n0", Card(CARD, 0, 1000, model="NVIDIA A100-SXM4-40GB"))
    async with resizing(cluster):
        cluster.pod("p", memory=100)
        shown = cluster.shown("p")
        limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "100", "nvidia.com/gputflops": "104"}
        shown["spec"]["containers"][0]["resources"] = {"limits": limits, "requests": limits}
        cluster.api.put("pods", shown)
        await cluster.placed("p")
        cluster.report("p", observed=0, container="first")
        assert cluster.share("p").tflops == 104_000
        cluster.wish("p", '{"main":{"gpucores":50}}')
        await cluster.event("ResizeRefused", "the pod requests compute in TFLOPs, which stay as they are")
        cluster.wish("p", LARGER)
        await cluster.has("p", 200)
        assert cluster.share("p").tflops == 104_000
