"""Both modes, one decision: the loop and the endpoints give the same nodes, the same reasons and the same cards."""

import random
import re
from typing import Any

import msgspec

from allocation.allocation import Allocation, CardShare
from allocation.inventory import Card, NodeInventory
from allocation.isolation import Isolation
from allocation.names import ALLOCATION, CLAIM, CORDON, SHARE_MODE_PREFIX
from allocation.placement import bound_placement
from allocation.placement.rejection import UNREGISTERED, Rejection, of_node
from allocation.reasons import CardReason, NodeReason, NodeRejection
from allocation.settings import BindingsMode, IsolationPolicy
from allocation.steps import finish
from allocation.wire.record import decode, encode
from cluster.gpu_binding import BindingMeta, GpuBinding
from cluster.gpu_claim import GpuClaim
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.metadata import ObjectMeta
from scheduler.cycle import messages
from scheduler.cycle.messages import counted
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.gpu_requirements import GpuRequirements
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from scheduler.state.quotas import ResourceQuota
from tests.allocation.support.mig_cards import instance, mig_card
from tests.scheduler.support import claims
from tests.scheduler.support.app_pods import app_labels, gpu_binding, settings
from tests.scheduler.support.builders import allocated, node, pod, state
from tests.scheduler.support.extending import Bindings, bound, extending, filtered, reasons, scored
from tests.scheduler.support.scheduling import forget, schedule
from tests.support.depth import repetitions

SCENARIOS = repetitions(400, 2000)
MODELS = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB")
ELSEWHERE = NodeRejection(NodeReason.NodeNameMismatch, "node didn't match the requested node name")


def cluster(dice: random.Random) -> tuple[ClusterState, list[str]]:
    """Return nodes with cards of all kinds, pods on some of them, taints, cordons, quotas and nodes without cards.

    In one of three clusters, cards are bound to applications.
    """
    mode: BindingsMode = dice.choice(("off", "off", "off", "off", "labelled", "required"))
    most = dice.choice((None, None, None, 2))
    policy: IsolationPolicy = dice.choice(("static", "dynamic"))
    made = state(settings=msgspec.structs.replace(settings(mode), most_pods_per_node=most, isolation_policy=policy))
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
            "annotations": {CORDON: f"GPU-{name}-0"} if dice.random() < 0.1 else {},
        }
        if mode != "off":
            metadata["annotations"] |= bind(dice, made, [card.uuid for card in cards if card.instance is None])
        spec = {"taints": [{"key": "k", "effect": "NoSchedule"}]} if dice.random() < 0.1 else {}
        allocatable = {"cpu": dice.choice(("3", "8", "64")), "memory": "256Gi", "pods": "110"}
        made.set_node(node(name, metadata=metadata, spec=spec, status={"allocatable": allocatable}))
        if dice.random() > 0.1:
            made.agent_reports.set(GpuNodeStatus(ObjectMeta(name=name), status_of(NodeInventory(name, cards))))
        for index in range(dice.randint(0, 3)):
            memory, card = dice.choice((100, 500, 900)), dice.randint(0, 3)
            labels = labels_of_app(dice) if mode != "off" else {}
            isolation = dice.choice((Isolation.NONE, Isolation.NONE, Isolation.MPS))
            running = allocated(
                f"r-{name}-{index}", node=name, memory=memory, card=card, labels=labels, isolation=isolation
            )
            made.set_pod(running)
        if dice.random() < 0.05:
            made.set_pod(pod(f"uncounted-{name}", memory=1, node=name, phase="Running"))
    if dice.random() < 0.2:
        hard = {"limits.nvidia.com/gpumem": str(dice.choice((500, 3000)))}
        quota = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": hard}}
        made.limits.set_quota(msgspec.convert(quota, ResourceQuota))
    for number in range(2):
        made.set_claim(claims.some_claim(dice, f"claim-{number}"))
    return made, names


def bind(dice: random.Random, made: ClusterState, uuids: list[str]) -> dict[str, str]:
    """Bind most of the cards of a node to applications; return the annotations that say how they are shared."""
    for uuid in uuids:
        for number in range(dice.choice((0, 1, 1, 2))):
            spec: dict[str, Any] = {"owner": dice.choice(("", "alice", "bob"))}
            if dice.random() < 0.3:
                spec["namespace"] = dice.choice(("default", "team"))
            if dice.random() < 0.5:
                spec["memory"] = dice.choice(("300", "1k", "600Mi", "0"))
            app = dice.choice(("comfyui", "comfyui", "ollama"))
            made.bindings.set(gpu_binding(f"{uuid.lower()}-{number}", uuid, app=app, **spec))
    return {f"{SHARE_MODE_PREFIX}{uuid}": dice.choice("0112") for uuid in uuids if dice.random() < 0.7}


def labels_of_app(dice: random.Random) -> dict[str, str]:
    """Return the labels of a pod, which mostly belongs to an application."""
    if dice.random() < 0.15:
        return {}
    app, owner = dice.choice(("comfyui", "comfyui", "comfyui", "ollama")), dice.choice(("", "alice", "alice", "bob"))
    return app_labels(app, owner, policy=dice.choice(("", "all", "single", "single")))


def container(dice: random.Random, name: str) -> dict[str, Any]:
    """Return a container with a valid, an empty or an invalid request."""
    limits = {"nvidia.com/gpu": str(dice.choice((1, 1, 1, 2, 3))), "cpu": dice.choice(("100m", "1"))}
    match dice.randint(0, 9):
        case 0:
            limits = {"cpu": "1"}
        case 1:
            limits["nvidia.com/gpumem-percentage"] = str(dice.choice((10, 50, 100)))
        case 2:
            limits["nvidia.com/gpumem"] = dice.choice(("1Gi", "100", "5k"))
        case _:
            limits["nvidia.com/gpumem"] = str(dice.choice((100, 400, 1000, 3000)))
    if len(limits) > 1 and dice.random() < 0.3:
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
    return pod_with(asks, annotations={**annotations, CLAIM: read.metadata.name})


def pod_with(asks: Pod, **metadata: Any) -> Pod:
    """Return the same pod with other annotations or labels."""
    return msgspec.structs.replace(asks, metadata=msgspec.structs.replace(asks.metadata, **metadata))


def asking(dice: random.Random, made: ClusterState, names: list[str]) -> Pod:
    """Return a pod with random requests, annotations and selectors, or with a claim."""
    annotations = {}
    if dice.random() < 0.2:
        annotations["hami.io/gpu-scheduler-policy"] = dice.choice(
            ("binpack", "spread", "mutex", "numa", "topology-aware", "nonsense")
        )
    if dice.random() < 0.2:
        annotations["hami.io/node-scheduler-policy"] = dice.choice(("binpack", "spread"))
    if dice.random() < 0.1:
        annotations["nvidia.com/use-gputype"] = dice.choice(("H100", "A100"))
    if dice.random() < 0.1:
        annotations["nvidia.com/nouse-gpuuuid"] = f"GPU-{names[0]}-0"
    if dice.random() < 0.1:
        annotations["nvidia.com/numa-bind"] = "true"
    if dice.random() < 0.1:
        annotations["tensor-fusion.ai/gpu-topology-max-tier"] = dice.choice("019")
        annotations["tensor-fusion.ai/require-gpu-topology"] = dice.choice(("true", "false"))
    if dice.random() < 0.05:
        node_name = dice.choice((*names, "ghost"))
        share = CardShare(f"GPU-{node_name}-0", dice.choice((0, 0, 1)), 100, 0)
        annotations[ALLOCATION] = encode(Allocation(node_name, {"main": (share,)}))
    labels = labels_of_app(dice) if made.bindings.is_on else {}
    if dice.random() < 0.3:
        return pod_with(claiming(dice, made, annotations), labels=labels)
    containers = [container(dice, name) for name in ("main", "side")[: dice.choice((1, 1, 2))]]
    more = {"initContainers": [container(dice, "init")]} if dice.random() < 0.1 else {}
    selector = {"nodeSelector": {"kubernetes.io/hostname": dice.choice(names)}} if dice.random() < 0.1 else {}
    return pod("asks", annotations=annotations, labels=labels, **{"containers": containers, **more, **selector})


KINDS = ("", " with a claim", " of an application")
"""What the counts of the test distinguish."""


def kind_of(made: ClusterState, asks: Pod) -> str:
    """Return which of `KINDS` a pod is."""
    if made.bindings.is_on and asks.metadata.labels:
        return " of an application"
    return " with a claim" if CLAIM in asks.metadata.annotations else ""


QUOTA = re.compile(r" \((ResourceQuota .*)\)$")
"""What the extender adds to a node's reason."""
NODE_TEXTS = (
    ("static", NodeReason.StaticAllocationMismatch),
    ("the cards of node ", NodeReason.NoCards),
    ("it has as many pods with cards ", NodeReason.NodeGpuPodsExhausted),
    ("no card bound to ", NodeReason.NodeNotBound),
    (r"\d+ of \d+ cards bound to ", NodeReason.InsufficientGPU),
)
"""How the text of a node's reason begins."""
HELD = ("PodHeld", "GpuClaimNotFound", "NoOwnerApplication", "NoGpuBinding")
"""How the note about a pod begins for which no node is evaluated."""


def restricted(asks: Pod, name: str) -> Pod:
    """Return the same pod restricted to one node."""
    return msgspec.structs.replace(asks, spec=msgspec.structs.replace(asks.spec, node_name=name))


def required(made: ClusterState, asks: Pod) -> GpuRequirements:
    """Return what a pod requires, which must be readable."""
    return made.requirements.of(asks)


def not_evaluated(made: ClusterState, requirements: GpuRequirements) -> dict[str, NodeRejection]:
    """Return the nodes that the loop does not evaluate for a pod, because they have no cards that it may have."""
    candidates, why = made.rejected_nodes.candidates(requirements), UNREGISTERED
    if requirements.bound is not None:
        why = bound_placement.not_bound(requirements.bound.identity)
    assert why.node is not None
    return {} if candidates is None else dict.fromkeys(sorted(made.node_cache.names - set(candidates)), why.node)


def rejection_of(text: str) -> Rejection:
    """Return the rejection that the extender shows as `text`, without its quota."""
    text = QUOTA.sub("", text)
    counts = {CardReason[name]: int(count) for count, name in re.findall(r"(\d+)/\d+ (\w+)", text)}
    if counts:
        return Rejection("", sum(counts.values()), counts)
    if text in NodeReason.__members__:
        return of_node(NodeRejection(NodeReason(text)))
    code = next((code for pattern, code in NODE_TEXTS if re.match(pattern, text)), NodeReason.UncountedPod)
    return of_node(NodeRejection(code, text))


def loop_notes(refused: dict[str, str], others: dict[str, NodeRejection]) -> tuple[str, ...]:
    """Return the loop's note for nodes that the extender rejects, one of these: it names the quota of one node."""
    rejections = {name: rejection_of(text) for name, text in refused.items() if name not in others}
    quotas = {found[1] for why in refused.values() if (found := QUOTA.search(why))}
    note = finish(messages.no_fit(rejections, others))
    return tuple(f"{note}; {quota}" for quota in quotas) or (note,)


async def test_the_extender_schedules_as_the_loop_does() -> None:
    """Random clusters and pods: equal fitting nodes, equal reasons of every node, and equal cards on every node."""
    dice = random.Random(7)  # noqa: S311 -- repeatable
    seen = {f"{result}{what}": 0 for result in ("fits", "waits", "held") for what in KINDS}
    for _ in range(SCENARIOS):
        made, names = cluster(dice)
        asks = asking(dice, made, names)
        what = kind_of(made, asks)
        sorting = finish(made.node_filter.filter(asks))
        api = Bindings()
        api.pods["asks"] = asks
        api.gpu_bindings = {
            each.name: GpuBinding(BindingMeta(name=each.name, creation_timestamp=each.created), each.spec)
            for each in made.bindings
        }
        verbs = extending(made, api)
        answer = filtered(verbs, asks, *sorting.fitting)
        refused = reasons(answer)
        assert sorted([*answer["nodenames"], *refused]) == sorted(sorting.fitting)

        whole = finish(schedule(made, asks))
        forget(made, asks)
        if isinstance(whole, Scheduled):
            seen["fits" + what] += 1
            assert f" {counted(len(answer['nodenames']))} fit" in whole.note or " at most " in whole.note
            if whole.allocation is not None:
                assert scored(verbs, asks, *answer["nodenames"])[whole.node] == 10
        elif whole.note.startswith(HELD) or "nothing would limit it" in whole.note:
            seen["held" + what] += 1
            assert set(refused.values()) <= {whole.note}
            assert "failedNodes" not in answer
            continue
        else:
            seen["waits" + what] += 1
            assert answer["nodenames"] == []
            others = {**sorting.rejections, **not_evaluated(made, required(made, asks))}
            assert whole.note.startswith(loop_notes(refused, others))

        for name in sorting.fitting:
            alone = finish(schedule(made, restricted(asks, name)))
            forget(made, asks)
            error = await bound(verbs, asks, name)
            forget(made, asks)
            if isinstance(alone, Unschedulable):
                assert name in refused
                others = {other: ELSEWHERE for other in names if other != name}
                others |= not_evaluated(made, required(made, asks))
                assert alone.note.startswith(loop_notes({name: refused[name]}, others))
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
