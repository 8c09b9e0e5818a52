"""Both modes, one decision: the loop and the endpoints give the same nodes, the same reasons and the same cards."""

import random
import re
from typing import Any

import msgspec

from allocation.allocation import Allocation, CardShare
from allocation.inventory import Card, NodeInventory
from allocation.names import ALLOCATION, CLAIM, CORDON
from allocation.placement.rejection import UNREGISTERED, Rejection, of_node
from allocation.reasons import CardReason, NodeReason, NodeRejection
from allocation.steps import finish
from allocation.wire.record import decode, encode
from cluster.gpu_claim import GpuClaim
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.metadata import ObjectMeta
from scheduler.cycle import messages
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from scheduler.state.quotas import ResourceQuota
from tests.allocation.support.mig_cards import instance, mig_card
from tests.scheduler.support import claims
from tests.scheduler.support.builders import allocated, node, pod, state
from tests.scheduler.support.extending import Bindings, bound, extending, filtered, reasons, scored
from tests.scheduler.support.scheduling import forget, schedule

SCENARIOS = 2000
MODELS = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB")
ELSEWHERE = NodeRejection(NodeReason.NodeNameMismatch, "node didn't match the requested node name")


def cluster(dice: random.Random) -> tuple[ClusterState, list[str]]:
    """Return nodes with cards of all kinds, pods on some of them, taints, cordons, quotas and nodes without cards."""
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
        if dice.random() < 0.15:
            cards += (mig_card(9, node=name), *(instance(9, "1g.5gb", start, node=name) for start in range(2)))
        metadata: dict[str, Any] = {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "zone": dice.choice("ab")},
        }
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
    for number in range(2):
        made.set_claim(claims.some_claim(dice, f"claim-{number}"))
    return made, names


def container(dice: random.Random, name: str) -> dict[str, Any]:
    """Return a container with a valid, an empty or an invalid request."""
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


def claiming(dice: random.Random, made: ClusterState, annotations: dict[str, str]) -> Pod:
    """Return a pod with a claim, which may be missing, or not what admission read."""
    name = dice.choice(("claim-0", "claim-1"))
    spec = made.claims.find("default", name)
    assert spec is not None
    read = GpuClaim(ObjectMeta(name=name, namespace="default"), spec)
    if dice.random() < 0.2:
        read = claims.some_claim(dice, name)
    if dice.random() < 0.1:
        read.metadata.name = "missing"
    asks = claims.claiming("asks", read, containers=("main", "side")[: dice.choice((1, 1, 2))])
    return pod_with(asks, {**annotations, CLAIM: read.metadata.name})


def pod_with(asks: Pod, annotations: dict[str, str]) -> Pod:
    """Return the same pod with other annotations."""
    return msgspec.structs.replace(asks, metadata=msgspec.structs.replace(asks.metadata, annotations=annotations))


def asking(dice: random.Random, made: ClusterState, names: list[str]) -> Pod:
    """Return a pod with random requests, annotations and selectors, or with a claim."""
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
        node_name = dice.choice((*names, "ghost"))
        share = CardShare(f"GPU-{node_name}-0", dice.choice((0, 0, 1)), 100, 0)
        annotations[ALLOCATION] = encode(Allocation(node_name, {"main": (share,)}))
    if dice.random() < 0.3:
        return claiming(dice, made, annotations)
    containers = [container(dice, name) for name in ("main", "side")[: dice.choice((1, 1, 2))]]
    more = {"initContainers": [container(dice, "init")]} if dice.random() < 0.1 else {}
    selector = {"nodeSelector": {"kubernetes.io/hostname": dice.choice(names)}} if dice.random() < 0.1 else {}
    return pod("asks", annotations=annotations, **{"containers": containers, **more, **selector})


QUOTA = re.compile(r" \((ResourceQuota .*)\)$")
"""What the extender adds to a node's reason."""


def restricted(asks: Pod, name: str) -> Pod:
    """Return the same pod restricted to one node."""
    return msgspec.structs.replace(asks, spec=msgspec.structs.replace(asks.spec, node_name=name))


def bare(made: ClusterState, asks: Pod) -> list[str]:
    """Return the nodes without cards, which are not evaluated for a pod."""
    candidates = made.candidates(
        made.requirements(asks.spec, asks.metadata.annotations, namespace=asks.metadata.namespace)
    )
    return [] if candidates is None else sorted(made.node_cache.names - set(candidates))


def rejection_of(text: str) -> Rejection:
    """Return the rejection that the extender shows as `text`, without its quota."""
    text = QUOTA.sub("", text)
    counts = {CardReason[name]: int(count) for count, name in re.findall(r"(\d+)/\d+ (\w+)", text)}
    if counts:
        return Rejection("", sum(counts.values()), counts)
    if text in NodeReason.__members__:
        return of_node(NodeRejection(NodeReason(text)))
    code = NodeReason.StaticAllocationMismatch if text.startswith("static") else NodeReason.UncountedPod
    return of_node(NodeRejection(code, text))


def loop_note(refused: dict[str, str], others: dict[str, NodeRejection]) -> str:
    """Return the loop's note for nodes that the extender rejects: it has the quota once, not with each node."""
    rejections = {name: rejection_of(text) for name, text in refused.items() if name not in others}
    quotas = {found[1] for why in refused.values() if (found := QUOTA.search(why))}
    return "; ".join([messages.no_fit(rejections, others), *quotas])


async def test_the_extender_schedules_as_the_loop_does() -> None:
    """2,000 clusters and pods: equal fitting nodes, equal reasons of every node, and equal cards on every node."""
    dice = random.Random(7)  # noqa: S311 -- repeatable
    seen = {f"{kind}{what}": 0 for kind in ("fits", "waits", "held") for what in ("", " with a claim")}
    for _ in range(SCENARIOS):
        made, names = cluster(dice)
        asks = asking(dice, made, names)
        what = " with a claim" if CLAIM in asks.metadata.annotations else ""
        sorting = finish(made.node_cache.filter(asks))
        api = Bindings()
        api.pods["asks"] = asks
        verbs = extending(made, api)
        answer = filtered(verbs, asks, *sorting.fitting)
        refused = reasons(answer)
        assert sorted([*answer["nodenames"], *refused]) == sorted(sorting.fitting)

        whole = finish(schedule(made, asks))
        forget(made, asks)
        if isinstance(whole, Scheduled):
            seen["fits" + what] += 1
            assert f" {len(answer['nodenames'])} nodes fit" in whole.note or " at most " in whole.note
            if whole.allocation is not None:
                assert scored(verbs, asks, *answer["nodenames"])[whole.node] == 10
        elif whole.note.startswith(("PodHeld", "GpuClaimNotFound")):
            seen["held" + what] += 1
            assert set(refused.values()) <= {whole.note}
            assert "failedNodes" not in answer
            continue
        else:
            seen["waits" + what] += 1
            assert answer["nodenames"] == []
            unregistered = dict.fromkeys(bare(made, asks), UNREGISTERED.node)
            assert whole.note.startswith(loop_note(refused, {**sorting.rejections, **unregistered}))

        for name in sorting.fitting:
            alone = finish(schedule(made, restricted(asks, name)))
            forget(made, asks)
            error = await bound(verbs, asks, name)
            forget(made, asks)
            if isinstance(alone, Unschedulable):
                assert name in refused
                others = {other: ELSEWHERE for other in names if other != name}
                others |= {other: UNREGISTERED.node for other in bare(made, asks) if other != name}
                assert alone.note.startswith(loop_note({name: refused[name]}, others))
                assert QUOTA.sub("", refused[name]) in error
            else:
                assert error == ""
                assert name in answer["nodenames"]
                binding = api.written[-1]
                assert binding["target"]["name"] == name
                text = binding["metadata"]["annotations"].get(ALLOCATION)
                assert (decode(text) if text else None) == alone.allocation
        assert made.ledger.reservation(asks.uid) is None
    assert min(seen.values()) > SCENARIOS // 40, seen
