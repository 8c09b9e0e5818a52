"""The verbs of the extender: their results, and that `/filter` and `/prioritize` change no state."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import yaml

from allocation.inventory import Card, NodeInventory
from allocation.names import ALLOCATION, CORDON, HAMI_REGISTER
from allocation.settings import ResourceNames
from allocation.steps import finish
from allocation.wire import hami
from cluster.errors import ApiError
from scheduler.cycle.result import Scheduled
from scheduler.extender import filtering, wire
from scheduler.extender.wire import Args, BindingArgs, UnreadableError
from tests.scheduler.support.builders import Clock, allocated, node, pod, state, status
from tests.scheduler.support.extending import Bindings, bound, extending, filtered, scored
from tests.scheduler.support.scheduling import forget, schedule

CONFIGURATION = Path(__file__).parents[3] / "manifests" / "extender" / "kube-scheduler.yaml"


def register(name: str, *, memory: int = 1000, cards: int = 2) -> str:
    """Return a register annotation."""
    return hami.encode_register(
        NodeInventory(name, tuple(Card(f"GPU-{name}-{index}", index, memory) for index in range(cards)))
    )


def whole(name: str, *, annotation: str = "") -> dict[str, Any]:
    """Return a Node as an autoscaler sends it, with unknown fields."""
    annotations = {HAMI_REGISTER: annotation} if annotation else {}
    return {"metadata": {"name": name, "annotations": annotations}, "status": {"images": [{"sizeBytes": 1}]}}


def offered(made: Any, asks: Any, *nodes: dict[str, Any]) -> dict[str, Any]:
    """Call `/filter` with node objects."""
    body = msgspec.json.encode({"pod": asks, "nodes": {"items": nodes}})
    answer: dict[str, Any] = msgspec.json.decode(
        wire.encode(finish(filtering.filter_(made._state, wire.decode_args(body))))
    )
    return answer


def args(asks: Any, *names: str) -> Args:
    """Return arguments with the nodes `names`."""
    return wire.decode_args(msgspec.json.encode({"pod": asks, "nodenames": names}))


def test_all_fitting_nodes_are_returned_in_the_given_order() -> None:
    """Not only the best: kube-scheduler has scores of its own. The others have a reason per card."""
    made = state("n1", "n2", "n3", cards=2)
    for card in (0, 1):
        made.set_pod(allocated(f"full-{card}", node="n2", memory=900, card=card))
    answer = filtered(extending(made), pod("a", memory=600), "n3", "n2", "n1")
    assert answer == {"nodenames": ["n3", "n1"], "failedNodes": {"n2": "2/2 CardInsufficientMemory"}}


async def test_filter_waits_for_deletions_in_flight() -> None:
    """kube-scheduler may see a deletion first, and would not ask again before the next event."""
    made = state("n1", cards=1)
    leaving = allocated("leaving", node="n1", memory=900)
    made.set_pod(leaving)
    asked, extender = args(pod("a", memory=600), "n1"), extending(made)
    asyncio.get_running_loop().call_soon(made.drop_pod, leaving)
    assert (await extender.filter_by_news(asked)).nodenames == ["n1"]


async def test_filter_does_not_wait_on_every_call() -> None:
    """Many pods that fit nowhere get their results without delay, except for one now and then."""
    made = state("n1", cards=1)
    leaving = allocated("leaving", node="n1", memory=900)
    made.set_pod(leaving)
    asked, extender = args(pod("a", memory=600), "n1"), extending(made)
    await extender.filter_by_news(asked)
    asyncio.get_running_loop().call_soon(made.drop_pod, leaving)
    assert (await extender.filter_by_news(asked)).failed_nodes == {"n1": "1/1 CardInsufficientMemory"}


def test_unresolvable_nodes_are_separate() -> None:
    """Unhealthy, cordoned, of the wrong type, too small, too few, or absent cards; a full card is resolvable."""
    made = state("full", cards=1)
    made.set_pod(allocated("other", node="full", memory=900))
    made.set_node(node("ill"))
    made.agent_reports.set(status("ill", healthy=False))
    cordon = {"name": "cordoned", "annotations": {CORDON: "GPU-cordoned-0,GPU-cordoned-1"}}
    made.set_node(node("cordoned", metadata=cordon))
    made.agent_reports.set(status("cordoned"))
    made.set_node(node("small"))
    made.agent_reports.set(status("small", memory=500))
    made.set_node(node("bare"))
    answer = filtered(extending(made), pod("a", memory=600), "full", "ill", "cordoned", "small", "bare", "ghost")
    assert answer == {
        "nodenames": [],
        "failedNodes": {"full": "1/1 CardInsufficientMemory"},
        "failedAndUnresolvableNodes": {
            "ill": "2/2 CardNotHealth",
            "cordoned": "2/2 CardCordoned",
            "small": "2/2 CardInsufficientMemory",
            "bare": "NodeUnregistered",
            "ghost": "NodeUnregistered",
        },
    }
    annotations = {"nvidia.com/use-gputype": "A100"}
    answer = filtered(extending(made), pod("a", memory=600, annotations=annotations), "full")
    assert answer["failedAndUnresolvableNodes"] == {"full": "1/1 CardTypeMismatch"}


def test_a_node_with_a_silent_agent_is_unresolvable() -> None:
    """No eviction makes the agent renew its Lease."""
    clock = Clock()
    made = state("n1", clock=clock)
    clock.now += 61
    answer = filtered(extending(made), pod("a", memory=600), "n1")
    assert "is silent" in answer["failedAndUnresolvableNodes"]["n1"]


def test_a_pod_without_gpu_gets_all_nodes_back() -> None:
    """By name or as objects, known to this process or not."""
    made = extending(state("n1"))
    assert filtered(made, pod("web"), "n1", "ghost")["nodenames"] == ["n1", "ghost"]
    nodes = [whole("n1"), whole("new")]
    assert offered(made, pod("web"), *nodes)["nodes"]["items"] == nodes


def test_an_invalid_pod_is_not_an_error() -> None:
    """Every node has a reason that names the field of the pod."""
    broken = pod("a", memory=1)
    broken.spec.containers[0].resources.limits = {"nvidia.com/gpumem": "1Gi"}
    answer = filtered(extending(state("n1")), broken, "n1")
    assert "error" not in answer
    assert 'spec.containers[0].resources.limits["nvidia.com/gpumem"]' in answer["failedAndUnresolvableNodes"]["n1"]


def test_filter_and_prioritize_reserve_nothing() -> None:
    """A pod that kube-scheduler gives up leaves nothing behind, in either form of the request."""
    made = state("n1")
    before = made.ledger.used.copy()
    verbs = extending(made)
    for _ in range(100):
        filtered(verbs, pod("a", memory=900), "n1")
        scored(verbs, pod("a", memory=900), "n1")
        offered(verbs, pod("a", memory=900), whole("n1"), whole("new", annotation=register("new")))
    assert np.array_equal(made.ledger.used, before)
    assert made.ledger.nodes == ("n1",)
    assert made.node_cache.pods_on("n1") == 0


def test_existing_nodes_are_evaluated_from_the_cache() -> None:
    """What an autoscaler, or a kube-scheduler without node cache, sends of them does not count."""
    made = state("n1", cards=1)
    made.set_pod(allocated("other", node="n1", memory=900))
    answer = offered(extending(made), pod("a", memory=600), whole("n1", annotation=register("n1")))
    assert answer == {
        "nodes": {"items": [], "metadata": {}},
        "failedNodes": {"n1": "1/1 CardInsufficientMemory"},
    }


def test_node_templates_are_evaluated_by_their_annotation() -> None:
    """All cards of a template are free, even if it was copied, with its UUIDs, from a node that is full."""
    made = state("n1", cards=1)
    made.set_pod(allocated("other", node="n1", memory=900))
    verbs = extending(made)
    card = Card("GPU-twice", 0, 1000)
    nodes = [
        whole("template-a", annotation=register("n1")),
        whole("template-b", annotation=register("n1")),
        whole("small", annotation=register("small", memory=500)),
        whole("broken", annotation="[{"),
        whole("twice", annotation=hami.encode_register(NodeInventory("twice", (card, card)))),
        whole("bare"),
    ]
    answer = offered(verbs, pod("a", memory=600), *nodes)
    assert answer["nodes"]["items"] == nodes[:2]
    refused = answer["failedAndUnresolvableNodes"]
    assert refused["small"] == "2/2 CardInsufficientMemory"
    assert refused["bare"] == "NodeUnregistered"
    assert HAMI_REGISTER in refused["broken"]
    assert "has already reported" in refused["twice"]
    # New cards have new UUIDs, so a pod that asks for the UUID of an existing card does not need another node.
    selective = pod("a", memory=600, annotations={"nvidia.com/use-gpuuuid": "GPU-n1-0"})
    assert offered(verbs, selective, nodes[0])["nodes"]["items"] == []


@pytest.mark.parametrize("policy", ["binpack", "spread"])
def test_scores_rank_nodes_as_the_loop_does(policy: str) -> None:
    """Only the loop's first choice has 10; no node has more than one that the loop prefers to it."""
    made = state("n1", "n2", "n3", "n4")
    for name, memory in (("n1", 100), ("n2", 600), ("n3", 300)):
        made.set_pod(allocated(f"on-{name}", node=name, memory=memory))
    asks = pod("a", memory=200, annotations={"hami.io/node-scheduler-policy": policy})
    scores = scored(extending(made), asks, "n1", "n2", "n3", "n4")
    expected = ["n2", "n3", "n1", "n4"] if policy == "binpack" else ["n4", "n1", "n3", "n2"]
    assert sorted(scores, key=lambda name: -scores[name]) == expected
    assert [name for name, score in scores.items() if score == 10] == expected[:1]
    assert scores[expected[-1]] == 0
    chosen = finish(schedule(made, asks))
    forget(made, asks)
    assert isinstance(chosen, Scheduled)
    assert chosen.node == expected[0]


def test_equal_nodes_score_equally_and_infeasible_ones_score_zero() -> None:
    """Whole numbers from 0 to 10, one for each node of the request."""
    assert scored(extending(state("n1", "n2")), pod("a", memory=200), "n1", "n2", "ghost") == {
        "n1": 10,
        "n2": 10,
        "ghost": 0,
    }


async def test_bind_reserves_and_writes_once() -> None:
    """Node, cards and environment in one Binding with the pod's UID; a second call finds the pod bound."""
    made, api = state("n1"), Bindings()
    asks = api.pods["a"] = pod("a", memory=600)
    verbs = extending(made, api)
    assert await bound(verbs, asks, "n1") == ""
    (binding,) = api.written
    assert binding["metadata"]["uid"] == "uid-a"
    assert binding["target"]["name"] == "n1"
    assert ALLOCATION in binding["metadata"]["annotations"]
    assert int(made.ledger.used[0].sum()) == 600
    assert "it is bound, or being bound, to n1" in await bound(verbs, asks, "n1")
    assert len(api.written) == 1


async def test_of_two_pods_filtered_onto_the_same_card_one_is_bound() -> None:
    """The node fitted both; the second Binding fails with the reason and reserves nothing."""
    made, api = state("n1", cards=1), Bindings()
    first, second = (pod(name, memory=600) for name in ("a", "b"))
    api.pods.update(a=first, b=second)
    verbs = extending(made, api)
    assert filtered(verbs, first, "n1")["nodenames"] == filtered(verbs, second, "n1")["nodenames"] == ["n1"]
    errors = await asyncio.gather(bound(verbs, first, "n1"), bound(verbs, second, "n1"))
    reason = "no available node, 1 node does not meet: 1 node 1/1 CardInsufficientMemory(n1)"
    assert sorted(errors) == ["", f"pod default/b: {reason}"]
    assert len(api.written) == 1
    assert int(made.ledger.used[0].sum()) == 600


async def test_a_failed_binding_releases_everything() -> None:
    """The API server's message is the error; cards, quota and node are as before."""
    made, api = state("n1"), Bindings()
    asks = api.pods["a"] = pod("a", memory=600)
    api.error = ApiError(
        request="POST", status=403, reason="Forbidden", message="this scheduler does not lead any more"
    )
    verbs = extending(made, api)
    assert "does not lead any more" in await bound(verbs, asks, "n1")
    recorder = verbs._binding_cycle._recorder
    events = [recorder._queue.get_nowait()[0] for _ in range(recorder._queue.qsize())]
    assert [(event.type, event.reason) for event in events][-1] == ("Warning", "BindingFailed")
    assert "does not lead any more" in events[-1].note
    assert int(made.ledger.used[0].sum()) == 0
    assert made.node_cache.pods_on("n1") == 0
    api.error = None
    assert await bound(verbs, asks, "n1") == ""


async def test_bind_rejects_pods_that_cannot_be_bound() -> None:
    """Unknown pod, unknown node, another UID, bound, terminating, gated, of another scheduler: each has a message."""
    made, api = state("n1"), Bindings()
    api.pods = {
        "a": pod("a", memory=600),
        "bound": pod("bound", memory=600, node="n1"),
        "going": pod("going", memory=600, deleted="2026-01-01T00:00:00Z"),
        "gated": pod("gated", memory=600, schedulingGates=[{"name": "x"}]),
        "foreign": pod("foreign", memory=600, schedulerName="default-scheduler"),
    }
    verbs = extending(made, api)
    assert "the cluster has no node ghost" in await bound(verbs, api.pods["a"], "ghost")
    assert "pod default/ghost does not exist" in await bound(verbs, pod("ghost"), "n1")
    assert "its UID is uid-a, not uid-old" in await bound(verbs, api.pods["a"], "n1", uid="uid-old")
    assert "n1" in await bound(verbs, api.pods["bound"], "n1")
    assert "being deleted" in await bound(verbs, api.pods["going"], "n1")
    assert "scheduling gates" in await bound(verbs, api.pods["gated"], "n1")
    assert "schedulerName is default-scheduler" in await bound(verbs, api.pods["foreign"], "n1")
    assert api.written == []
    assert made.ledger.reservation("uid-a") is None


async def test_a_pod_without_gpu_is_bound() -> None:
    """kube-scheduler does not send such pods; one that is sent gets bound without cards."""
    made, api = state("n1"), Bindings()
    asks = api.pods["web"] = pod("web")
    assert await bound(extending(made, api), asks, "n1") == ""
    assert ALLOCATION not in api.written[0]["metadata"]["annotations"]


async def test_a_binding_continues_when_its_caller_disconnects() -> None:
    """kube-scheduler has its own timeout; the cards stay reserved until the outcome is known."""
    made, api = state("n1"), Bindings()
    api.pods["a"] = pod("a", memory=600)
    begun, gate = asyncio.Event(), asyncio.Event()

    async def late(method: str, path: str, **how: Any) -> bytes:
        if path.endswith("/binding"):
            begun.set()
            await gate.wait()
        return await Bindings.request(api, method, path, **how)

    api.request = late  # type: ignore[method-assign]
    verbs = extending(made, api)
    call = asyncio.create_task(verbs.bind(BindingArgs("a", "default", "uid-a", "n1")))
    await begun.wait()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert int(made.ledger.used[0].sum()) == 600
    assert not await verbs.drain(0.01)
    gate.set()
    assert await verbs.drain(5)
    assert len(api.written) == 1
    assert int(made.ledger.used[0].sum()) == 600


@pytest.mark.parametrize("key", ["pod nodenames", "Pod NodeNames", "POD nodeNames"])
def test_keys_come_in_any_case(key: str) -> None:
    """Releases of kube-scheduler differ in them."""
    pod_key, names_key = key.split()
    args = wire.decode_args(msgspec.json.encode({pod_key: pod("a"), names_key: ["n1"]}))
    assert args.names == ["n1"]
    binding = b'{"PodName":"a","podNamespace":"d","PODUID":"u","node":"n"}'
    assert wire.decode_binding(binding) == BindingArgs("a", "d", "u", "n")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b"\xff\xfe",
        b'{"pod":null,"nodenames":["n1"]}',
        b'{"pod":{"metadata":{},"spec":{}},"nodenames":[1]}',
        b'{"pod":{"metadata":{},"spec":{"containers":3}},"nodenames":["n1"]}',
        b'{"pod":{"metadata":{},"spec":{}}}',
        b'{"pod":{"metadata":{},"spec":{}},"nodes":null,"nodenames":null}',
        b'{"pod":{"metadata":{},"spec":{}},"nodes":{"items":[{}]}}',
        b'{"pod":{"metadata":{},"spec":{},"apiVersion":"v2"},"nodenames":["n1"]}',
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}',
        b"[" * 100_000,
        b'{"pod":' * 100_000,
        b'{"PodName":7,"PodNamespace":"d","PodUID":"u","Node":"n"}',
    ],
)
def test_malformed_bodies_raise_unreadable_error(body: bytes) -> None:
    """No malformed body is read as something else, or raises another error."""
    with pytest.raises(UnreadableError, match="ExtenderArgs|expected a Pod of v1"):
        wire.decode_args(body)
    with pytest.raises(UnreadableError, match="ExtenderBindingArgs"):
        wire.decode_binding(body)


def test_kube_scheduler_ignores_all_resources_of_the_extender() -> None:
    """A resource missing in its configuration would keep pods waiting for ever: no node advertises it."""
    (configured,) = yaml.safe_load(CONFIGURATION.read_text())["extenders"]
    assert {each["name"] for each in configured["managedResources"]} == set(ResourceNames().managed())
    assert all(each["ignoredByScheduler"] for each in configured["managedResources"])
