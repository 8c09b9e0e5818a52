"""Both modes, one decision: the loop and the endpoints give the same nodes, the same reasons and the same cards."""

import random
from typing import Any

import msgspec

from allocation.allocation import Allocation, CardShare
from allocation.inventory import Card, NodeInventory
from allocation.names import ALLOCATION, CORDON
from allocation.record import decode, encode
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.metadata import ObjectMeta
from scheduler import messages
from scheduler.cycle import Chosen, Waiting, decide, undo
from scheduler.objects import Pod
from scheduler.quotas import ResourceQuota
from scheduler.state import State
from tests.scheduler.builders import allocated, node, pod, state
from tests.scheduler.extending import Bindings, bound, extending, filtered, reasons, scored

SCENARIOS = 2000
MODELS = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB")
ELSEWHERE = "node didn't match the requested node name"


def cluster(dice: random.Random) -> tuple[State, list[str]]:
    """Answer nodes with cards of all kinds, pods on some of them, taints, cordons, quotas and nodes without cards."""
    made = state()
    names = [f"n{number}" for number in range(dice.randint(1, 5))]
    for name in names:
        cards = tuple(
            Card(
                f"GPU-{name}-{index}",
                index,
                dice.choice((1000, 4000)),
                slots=dice.choice((1, 2, 4)),
                model=dice.choice(MODELS),
                numa=index % 2,
                healthy=dice.random() > 0.1,
            )
            for index in range(dice.randint(0, 4))
        )
        metadata: dict[str, Any] = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        if dice.random() < 0.1:
            metadata["annotations"] = {CORDON: f"GPU-{name}-0"}
        spec = {"taints": [{"key": "k", "effect": "NoSchedule"}]} if dice.random() < 0.1 else {}
        made.set_node(node(name, metadata=metadata, spec=spec))
        if dice.random() > 0.1:
            made.set_status(GpuNodeStatus(ObjectMeta(name=name), status_of(NodeInventory(name, cards))))
        for index in range(dice.randint(0, 3)):
            memory, card = dice.choice((100, 500, 900)), dice.randint(0, 3)
            made.set_pod(allocated(f"r-{name}-{index}", node=name, memory=memory, card=card))
        if dice.random() < 0.05:
            made.set_pod(pod(f"uncounted-{name}", memory=1, node=name, phase="Running"))
    if dice.random() < 0.2:
        hard = {"limits.nvidia.com/gpumem": str(dice.choice((500, 3000)))}
        quota = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": hard}}
        made.set_quota(msgspec.convert(quota, ResourceQuota))
    return made, names


def container(dice: random.Random, name: str) -> dict[str, Any]:
    """Answer a container that asks for something, nothing, or nonsense."""
    limits = {"nvidia.com/gpu": str(dice.choice((1, 1, 1, 2, 3)))}
    match dice.randint(0, 9):
        case 0:
            limits = {}
        case 1:
            limits["nvidia.com/gpumem-percentage"] = str(dice.choice((10, 50, 100)))
        case 2:
            limits["nvidia.com/gpumem"] = dice.choice(("1Gi", "100", "5k"))
        case _:
            limits["nvidia.com/gpumem"] = str(dice.choice((100, 400, 1000, 3000)))
    if limits and dice.random() < 0.3:
        limits["nvidia.com/gpucores"] = str(dice.choice((0, 30, 60, 100)))
    return {"name": name, "resources": {"limits": limits, "requests": limits}}


def asking(dice: random.Random, names: list[str]) -> Pod:
    """Answer a pod with wishes of all kinds."""
    annotations = {}
    if dice.random() < 0.2:
        annotations["hami.io/gpu-scheduler-policy"] = dice.choice(("binpack", "spread", "mutex", "numa", "nonsense"))
    if dice.random() < 0.2:
        annotations["hami.io/node-scheduler-policy"] = dice.choice(("binpack", "spread"))
    if dice.random() < 0.1:
        annotations["nvidia.com/use-gputype"] = dice.choice(("H100", "A100"))
    if dice.random() < 0.1:
        annotations["nvidia.com/nouse-gpuuuid"] = f"GPU-{names[0]}-0"
    if dice.random() < 0.1:
        annotations["nvidia.com/numa-bind"] = "true"
    if dice.random() < 0.05:
        home = dice.choice((*names, "ghost"))
        share = CardShare(f"GPU-{home}-0", dice.choice((0, 0, 1)), 100, 0)
        annotations[ALLOCATION] = encode(Allocation(home, {"main": (share,)}))
    containers = [container(dice, name) for name in ("main", "side")[: dice.choice((1, 1, 2))]]
    more = {"initContainers": [container(dice, "init")]} if dice.random() < 0.1 else {}
    selector = {"nodeSelector": {"kubernetes.io/hostname": dice.choice(names)}} if dice.random() < 0.1 else {}
    return pod("asks", annotations=annotations, **{"containers": containers, **more, **selector})


def restricted(asks: Pod, name: str) -> Pod:
    """Answer the same pod as the loop can place it on one node only."""
    return msgspec.structs.replace(asks, spec=msgspec.structs.replace(asks.spec, node_name=name))


async def test_the_endpoints_decide_as_the_loop_does() -> None:
    """2,000 clusters and pods: the fitting nodes, every node's reason, and on every node the very cards."""
    dice = random.Random(7)  # noqa: S311 -- repeatable
    seen = {"fits": 0, "waits": 0, "held": 0}
    for _ in range(SCENARIOS):
        made, names = cluster(dice)
        asks = asking(dice, names)
        sorting = made.fleet.sort(asks)
        api = Bindings()
        api.pods["asks"] = asks
        verbs = extending(made, api)
        answer = filtered(verbs, asks, *sorting.fitting)
        refused = reasons(answer)
        assert sorted([*answer["nodenames"], *refused]) == sorted(sorting.fitting)

        whole = decide(made, asks)
        undo(made, asks)
        if isinstance(whole, Chosen):
            seen["fits"] += 1
            assert f" {len(answer['nodenames'])} nodes fit" in whole.note or " at most " in whole.note
            if whole.allocation is not None:
                assert scored(verbs, asks, *answer["nodenames"])[whole.node] == 10
        elif whole.note.startswith("held"):
            seen["held"] += 1
            assert set(refused.values()) <= {whole.note}
            assert "failedNodes" not in answer
            continue
        else:
            seen["waits"] += 1
            assert answer["nodenames"] == []
            assert whole.note == messages.no_fit({}, {**refused, **sorting.refusals})

        for name in sorting.fitting:
            alone = decide(made, restricted(asks, name))
            undo(made, asks)
            told = await bound(verbs, asks, name)
            undo(made, asks)
            others = {other: ELSEWHERE for other in names if other != name}
            if isinstance(alone, Waiting):
                assert name in refused
                assert alone.note == messages.no_fit({}, {name: refused[name], **others})
                assert refused[name] in told
            else:
                assert told == ""
                assert name in answer["nodenames"]
                binding = api.written[-1]
                assert binding["target"]["name"] == name
                text = binding["metadata"]["annotations"].get(ALLOCATION)
                assert (decode(text) if text else None) == alone.allocation
        assert made.ledger.holding(asks.uid) is None
    assert min(seen.values()) > SCENARIOS // 40, seen
