"""A running pod gets the size that its user wishes, and is charged for as long as it may use the old one."""

from __future__ import annotations

import asyncio

import pytest

from allocation.names import ALLOCATION, FENCED_LABEL, LEADER, RESIZE, RESIZED
from allocation.steps import finish
from cluster.errors import ApiError, UnreachableError
from scheduler.resize import resizer
from scheduler.state.comparison import differences
from tests.scheduler.support.explaining import explained
from tests.scheduler.support.resizing import CARD, Resizing, resizing
from tests.scheduler.support.terms import TOKEN, leading


async def test_a_pod_grows_by_one_write(cluster: Resizing) -> None:
    """Allocation, limits in the environment, and the leader's token come together, and an event says so."""
    async with resizing(cluster):
        await cluster.runs("p", 100)
        writes = len(cluster.api.requests)
        cluster.wish("p", '{"main":{"gpumem":600,"gpucores":40}}')
        await cluster.has("p", 600)
        patches = [path for method, path in cluster.api.requests[writes:] if method == "PATCH" and "/pods/" in path]
        assert patches == ["/api/v1/namespaces/default/pods/p"]
        assert cluster.charged("p") == (600, 400)
        metadata = cluster.shown("p")["metadata"]
        annotations = metadata["annotations"]
        assert annotations["cuda-device-memory-limit-0.gpu.scheduling/main"] == "600m"
        assert annotations["cuda-device-memory-limit.gpu.scheduling/main"] == "600m"
        assert annotations["cuda-device-sm-limit.gpu.scheduling/main"] == "40"
        assert f"{CARD},NVIDIA,600,40" in annotations["hami.io/vgpu-devices-allocated"]
        assert annotations[LEADER] == TOKEN
        assert annotations[RESIZED] == '{"from":{"main":[[100,0]]},"generation":2}'
        assert metadata["labels"][FENCED_LABEL] == "true"
        assert metadata["generation"] == 2
        await cluster.event("Resized", "100 MiB and 0 % become 600 MiB and 40 %")
        await cluster.until(lambda: not cluster.term.state.resized_to, "the informer that shows it")
        assert cluster.metric("tranche_scheduler_resizes_total", outcome="resized") == 1
        shown = explained(cluster.term.state, cluster.term.state.running["uid-p"]).resize
        assert shown.startswith("in progress: its kubelet has not seen the new size yet")


async def test_a_limit_above_the_request_is_resized_like_the_request(cluster: Resizing) -> None:
    """The card is charged the request, the environment has the limit, and the old limit counts until a restart."""
    async with resizing(cluster):
        await cluster.runs("p", 100)
        cluster.wish("p", '{"main":{"gpucores":30,"limits":{"gpucores":80}}}')
        await cluster.until(lambda: cluster.share("p").cores_limit == 800, "limit")
        assert cluster.charged("p") == (100, 300)
        assert cluster.annotation("p", "cuda-device-sm-limit.gpu.scheduling/main") == "80"
        await cluster.event("Resized", "100 MiB and 30 % (up to 100 MiB and 80 %)")
        cluster.wish("p", '{"main":{"gpucores":30,"limits":{"gpucores":60}}}')
        await cluster.until(lambda: cluster.share("p").cores_limit == 600, "smaller limit")
        assert '"limits":{"main":[[0,800]]}' in (cluster.annotation("p", RESIZED) or "")
        reservation = cluster.term.ledger.reservation("uid-p")
        assert reservation is not None
        assert reservation.charges[0].burst_cores == 500
        assert finish(differences(cluster.term.state, cluster.term.queries.pods)) == []
        cluster.wish("p", '{"main":{"gpucores":70}}')
        await cluster.event("ResizeRefused", "the limit of gpucores would be below the request")


async def test_what_a_pod_gives_back_is_free_once_its_container_is_another(cluster: Resizing) -> None:
    """Neither a report of the kubelet by the old pod nor one by the new pod with the old container is enough."""
    async with resizing(cluster):
        await cluster.runs("p", 800)
        cluster.wish("p", '{"main":{"gpumem":100}}')
        await cluster.has("p", 100)
        cluster.pod("next", memory=500, annotations={"nvidia.com/use-gpuuuid": CARD})
        await cluster.waits("next", "CardInsufficientMemory")
        cluster.report("p", observed=1, container="p-second")  # made by the pod as it was: it was cut off
        cluster.report("p", observed=2, container="p-second")
        await cluster.until(lambda: "p-second" in (cluster.annotation("p", RESIZED) or ""), "container that is noted")
        assert cluster.charged("p") == (800, 0)
        cluster.report("p", observed=2, container="p-third")
        await cluster.is_over("p")
        await cluster.is_charged("p", 100)
        await cluster.placed("next")


async def test_without_generations_the_old_size_counts_until_the_pod_ends(cluster: Resizing) -> None:
    """Before Kubernetes 1.34 it cannot be known which pod a kubelet has seen."""
    async with resizing(cluster):
        await cluster.runs("p", 800, generation=None)
        cluster.wish("p", '{"main":{"gpumem":100}}')
        await cluster.has("p", 100)
        assert "tolerations" not in cluster.shown("p")["spec"]
        cluster.report("p", observed=0, container="p-second")
        cluster.wish("p", '{"main":{"gpumem":200}}')
        await cluster.has("p", 200)
        assert cluster.charged("p") == (800, 0)
        assert cluster.annotation("p", RESIZED) == '{"from":{"main":[[800,0]]}}'


async def test_each_size_since_the_last_start_counts(cluster: Resizing) -> None:
    """A container may have any of them: it starts when it wants."""
    async with resizing(cluster):
        await cluster.runs("p", 300)
        for memory in (600, 200, 400):
            cluster.wish("p", f'{{"main":{{"gpumem":{memory}}}}}')
            await cluster.has("p", memory)
        assert cluster.charged("p") == (600, 0)
        assert cluster.shown("p")["spec"]["tolerations"] == [
            {"key": RESIZED, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}
        ]


async def test_a_size_that_does_not_fit_is_refused_with_what_is_left(cluster: Resizing) -> None:
    """The pod stays as it is, and the event says what its card has left."""
    async with resizing(cluster):
        await cluster.runs("p", 300)
        await cluster.runs("other", 500)
        before = cluster.annotation("p", ALLOCATION)
        cluster.wish("p", '{"main":{"gpumem":501}}')
        await cluster.event("ScalingQuotaExceeded", f"{CARD} has 200 MiB and 100 % of a card's cores left")
        assert (cluster.charged("p"), cluster.annotation("p", ALLOCATION)) == ((300, 0), before)
        assert cluster.metric("tranche_scheduler_resizes_total", outcome="exceeded") == 1
        shown = explained(cluster.term.state, cluster.term.state.running["uid-p"]).resize
        assert shown.startswith("the size that its annotation wishes is refused: card")
        assert f"{CARD} has 200 MiB and 100 % of a card's cores left" in shown
        cluster.wish("p", '{"main":{"gpumem":500}}')
        await cluster.has("p", 500)


async def test_a_wish_that_cannot_be_read_is_refused(cluster: Resizing) -> None:
    """The event names the annotation and its form."""
    async with resizing(cluster):
        await cluster.runs("p", 300)
        for text, words in (
            ("{", "of the form"),
            ('{"main":{"gpumem":0}}', "gpumem"),
            ('{"main":{"gpucores":101}}', "gpucores"),
            ('{"other":{"gpumem":1}}', "container other"),
            ('{"main":{"count":2}}', "count"),
            ("x" * 9000, "at most 8192 characters"),
        ):
            cluster.wish("p", text)
            event = await cluster.event("ResizeRefused", words)
            assert len(event["note"]) < 1000


async def test_a_refused_write_gives_back_what_was_charged_for_it(cluster: Resizing) -> None:
    """As where the component is not installed, so that the scheduler may not patch pods."""
    async with resizing(cluster):
        await cluster.runs("p", 300)

        def refuse(method: str, path: str) -> None:
            if method == "PATCH" and path.endswith("/pods/p"):
                raise ApiError(request=path, status=403, reason="Forbidden", message="refused by the test")

        cluster.api.on_write = refuse
        cluster.wish("p", '{"main":{"gpumem":900}}')
        await cluster.event("ResizeRefused", "refused by the test")
        assert cluster.charged("p") == (300, 0)
        await cluster.runs("other", 600)


async def test_a_lost_response_charges_the_larger_size(cluster: Resizing) -> None:
    """The write may take effect at any time until its outcome is known, which the pod then shows."""
    async with resizing(cluster):
        await cluster.runs("p", 300)
        lost = asyncio.Event()

        def lose(method: str, path: str) -> None:
            if method == "PATCH" and path.endswith("/pods/p") and not lost.is_set():
                lost.set()
                raise UnreachableError("lost by the test")

        cluster.api.on_write = lose
        cluster.wish("p", '{"main":{"gpumem":900}}')
        await lost.wait()
        assert cluster.charged("p") == (900, 0)
        cluster.pod("other", memory=600, annotations={"nvidia.com/use-gpuuuid": CARD})
        await cluster.waits("other", "CardInsufficientMemory")
        await cluster.has("p", 900)


async def test_a_wish_that_is_taken_back_meanwhile_is_not_written(cluster: Resizing) -> None:
    """The write names the version that was read, so it has no effect, and what it needed is given back."""
    async with resizing(cluster):
        await cluster.runs("p", 300)
        cluster.api.held["/pods/p"] = asyncio.Event()
        cluster.wish("p", '{"main":{"gpumem":900}}')
        await cluster.is_charged("p", 900)
        cluster.wish("p", None)
        cluster.api.held["/pods/p"].set()
        await cluster.is_charged("p", 300)
        assert cluster.share("p").memory_mib == 300
        assert cluster.annotation("p", RESIZE) is None


async def test_the_charge_outlives_a_late_watch(cluster: Resizing) -> None:
    """A state of before the write that the watch still shows does not give back what the write has given."""
    async with resizing(cluster):
        await cluster.runs("p", 300)
        cluster.api.held["/pods/p"] = asyncio.Event()
        cluster.wish("p", '{"main":{"gpumem":900}}')
        await cluster.is_charged("p", 900)
        cluster.api.late.add("pods")
        cluster.api.held["/pods/p"].set()
        await cluster.has("p", 900)
        await cluster.event("Resized")
        cluster.term.state.set_pod(cluster.term.state.running["uid-p"])
        assert cluster.charged("p") == (900, 0)
        assert finish(differences(cluster.term.state, cluster.term.queries.pods)) == []


async def test_a_new_term_charges_the_same(cluster: Resizing) -> None:
    """Everything that counts is in the annotations: nothing is lost with the leader."""
    async with resizing(cluster):
        await cluster.runs("p", 800)
        cluster.wish("p", '{"main":{"gpumem":100}}')
        await cluster.has("p", 100)
        await cluster.is_charged("p", 800)
    async with resizing(cluster):
        assert cluster.charged("p") == (800, 0)
        cluster.report("p", observed=2, container="p-first")
        await cluster.until(lambda: "p-first" in (cluster.annotation("p", RESIZED) or ""), "container that is noted")
    async with resizing(cluster):
        cluster.report("p", observed=2, container="p-second")
        await cluster.is_over("p")
        await cluster.is_charged("p", 100)


async def test_a_wish_is_carried_out_by_the_next_leader(cluster: Resizing) -> None:
    """It may have been written while none led; a wish that is fulfilled is left alone."""
    async with resizing(cluster):
        await cluster.runs("p", 300)
    cluster.wish("p", '{"main":{"gpumem":900}}')
    async with resizing(cluster):
        await cluster.has("p", 900)
    version = cluster.shown("p")["metadata"]["resourceVersion"]
    async with resizing(cluster):
        await cluster.runs("q", 100)
        assert cluster.shown("p")["metadata"]["resourceVersion"] == version


async def test_without_the_setting_nothing_is_resized(cluster: Resizing) -> None:
    """The wish stays a wish."""
    async with leading(cluster):
        await cluster.runs("p", 300)
        cluster.wish("p", '{"main":{"gpumem":900}}')
        await cluster.runs("q", 100)
        assert cluster.share("p").memory_mib == 300


async def test_a_leader_that_ends_between_check_and_write_loses_nothing(cluster: Resizing) -> None:
    """What it had charged ends with it, and the next one checks and writes."""
    async with resizing(cluster):
        await cluster.runs("p", 300)
        cluster.api.held["/pods/p"] = asyncio.Event()
        cluster.wish("p", '{"main":{"gpumem":900}}')
        await cluster.is_charged("p", 900)
    cluster.api.held.clear()
    assert cluster.share("p").memory_mib == 300
    async with resizing(cluster):
        await cluster.has("p", 900)
        assert cluster.charged("p") == (900, 0)


async def test_a_refusal_after_a_lost_response_gives_nothing_back(cluster: Resizing) -> None:
    """An API server that has just started refuses everything for moments; the first write may still take effect."""
    async with resizing(cluster):
        await cluster.runs("p", 300)
        sent = 0

        def answer(method: str, path: str) -> None:
            nonlocal sent
            if method == "PATCH" and path.endswith("/pods/p"):
                sent += 1
                if sent == 1:
                    raise UnreachableError("lost by the test")
                raise ApiError(request=path, status=403, reason="Forbidden", message="refused by the test")

        cluster.api.on_write = answer
        cluster.wish("p", '{"main":{"gpumem":900}}')
        await cluster.until(lambda: sent == 2, "a refusal")
        cluster.pod("other", memory=600, annotations={"nvidia.com/use-gpuuuid": CARD})
        await cluster.waits("other", "CardInsufficientMemory")
        assert cluster.charged("p") == (900, 0)


async def test_a_wish_that_was_refused_is_looked_at_again(cluster: Resizing, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pod grows once another one has ended; the event is not repeated meanwhile."""
    monkeypatch.setattr(resizer, "RETRY_SECONDS", 0.01)
    async with resizing(cluster):
        await cluster.runs("p", 300)
        await cluster.runs("other", 700)
        cluster.wish("p", '{"main":{"gpumem":900}}')
        await cluster.event("ScalingQuotaExceeded")
        cluster.end("other")
        await cluster.has("p", 900)
        await cluster.event("Resized")
        refusals = [each for each in cluster.api.all("events") if each["reason"] == "ScalingQuotaExceeded"]
        assert [each.get("series") for each in refusals] == [None]


async def test_no_size_is_checked_while_reservations_are_missing_for_moments(cluster: Resizing) -> None:
    """As while the pods of a gang are chosen."""
    async with resizing(cluster):
        await cluster.runs("p", 300)
        async with cluster.term.state.turn:
            cluster.wish("p", '{"main":{"gpumem":900}}')
            await cluster.until(lambda: cluster.has_seen_wish("p"), "the wish")
            await cluster.runs("q", 100, annotations={"nvidia.com/use-gpuuuid": "GPU-n0-1"})
            assert cluster.charged("p") == (300, 0)
        await cluster.has("p", 900)


async def test_a_leader_that_is_not_trusted_writes_nothing(cluster: Resizing) -> None:
    """Another one may lead already."""
    async with resizing(cluster):
        await cluster.runs("p", 300)
        cluster.is_trusted = False
        cluster.wish("p", '{"main":{"gpumem":900}}')
        await cluster.until(lambda: cluster.has_seen_wish("p"), "the wish")
    assert cluster.share("p").memory_mib == 300


async def test_pods_are_resized_in_extender_mode(cluster: Resizing) -> None:
    """The check and the write are the same; kube-scheduler takes no part."""
    async with resizing(cluster):
        await cluster.runs("p", 300)
    async with resizing(cluster, extender=True):
        cluster.wish("p", '{"main":{"gpumem":900}}')
        await cluster.has("p", 900)
        assert cluster.charged("p") == (900, 0)


async def test_a_pod_that_ends_meanwhile_is_forgotten(cluster: Resizing) -> None:
    """Nothing stays charged for it."""
    async with resizing(cluster):
        await cluster.runs("p", 300)
        cluster.api.held["/pods/p"] = asyncio.Event()
        cluster.wish("p", '{"main":{"gpumem":900}}')
        await cluster.is_charged("p", 900)
        cluster.end("p")
        cluster.api.held["/pods/p"].set()
        await cluster.runs("q", 1000)
        assert cluster.term.state.resized_to == {}


async def test_nothing_is_given_back_before_the_write(cluster: Resizing) -> None:
    """A smaller size is not charged while it is being written either."""
    async with resizing(cluster):
        await cluster.runs("p", 800)
        cluster.api.held["/pods/p"] = asyncio.Event()
        cluster.wish("p", '{"main":{"gpumem":100,"gpucores":10}}')
        await cluster.until(lambda: cluster.charged("p")[1] == 100, "the charge of the new size")
        assert cluster.charged("p") == (800, 100)
        cluster.api.held["/pods/p"].set()
        await cluster.has("p", 100)
        assert cluster.charged("p") == (800, 100)
