"""How the scheduler would count each running pod, and the nodes that uncounted pods close."""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final, Literal

import msgspec

from allocation.errors import AllocationError
from allocation.names import ALLOCATED, ALLOCATION, HAMI_ALLOCATED
from allocation.settings import AllocationSettings
from allocation.wire import hami
from cli.kube.objects import Pod as AnnotatedPod
from cli.preflight.findings import Finding
from scheduler.objects import Pod
from scheduler.state.running_allocation import running_allocation

_FOREIGN: Final = f"another scheduler placed it, whose annotation {ALLOCATED} does not say what it uses of each card"
_AGAIN: Final = "let it finish, or delete it so that it is created again after the switch"

Counted = Literal["ours", "HAMi's", "HAMi's, misaligned", "uncounted"]


class RunningSummary(msgspec.Struct, frozen=True):
    """The running GPU pods, by how they are counted, by node and by namespace."""

    counted: Counter[Counted]
    nodes: Counter[str]
    namespaces: Counter[str]
    findings: tuple[Finding, ...]


def left_by_another_scheduler(pods: Iterable[msgspec.Raw]) -> frozenset[str]:
    """Return the UIDs of pods whose cards another scheduler with annotations of our group chose: ziwon/gpu-scheduler.

    They have the indexes of their cards, which the scheduler never reads, and no allocation.
    """
    word = ALLOCATED.encode()
    annotated = (msgspec.json.decode(raw, type=AnnotatedPod).metadata for raw in pods if word in bytes(raw))
    return frozenset(
        each.uid
        for each in annotated
        if ALLOCATED in each.annotations and not {ALLOCATION, HAMI_ALLOCATED} & each.annotations.keys()
    )


def evaluate(pods: Iterable[Pod], settings: AllocationSettings, *, foreign: Collection[str]) -> RunningSummary:
    """Count every pod as the scheduler does; `foreign` are the UIDs of `left_by_another_scheduler`."""
    counted: Counter[Counted] = Counter()
    nodes: Counter[str] = Counter()
    namespaces: Counter[str] = Counter()
    findings: list[Finding] = []
    for pod in pods:
        node = pod.spec.node_name
        try:
            held = running_allocation(pod, settings)
        except AllocationError as error:
            counted["uncounted"] += 1
            nodes[node] += 1
            namespaces[pod.metadata.namespace] += 1
            findings.append(
                Finding(
                    "blocks",
                    (f"pod {pod}",),
                    f"its node {node} is closed to new GPU pods, because the pod runs there uncounted:"
                    f" {_FOREIGN if pod.uid in foreign else error}",
                    _AGAIN,
                )
            )
            continue
        if held is None:
            if node and not pod.finished and pod.uid in foreign:
                counted["uncounted"] += 1
                what = f"its cards on node {node} would be given to new pods, too: {_FOREIGN}, and it requests no GPU"
                findings.append(Finding("blocks", (f"pod {pod}",), what, _AGAIN))
            continue
        nodes[node] += 1
        namespaces[pod.metadata.namespace] += 1
        how = _how(pod)
        counted[how] += 1
        if how == "HAMi's, misaligned":
            findings.append(
                Finding(
                    "notes",
                    (f"pod {pod}",),
                    "HAMi's allocation string lacks entries (HAMi issue 2899); it is read from its end",
                )
            )
    return RunningSummary(counted, nodes, namespaces, tuple(findings))


def _how(pod: Pod) -> Counted:
    if ALLOCATION in pod.metadata.annotations:
        return "ours"
    entries = len(hami.decode_devices(pod.metadata.annotations[HAMI_ALLOCATED]))
    return "HAMi's" if entries == len(pod.spec.init_containers) + len(pod.spec.containers) else "HAMi's, misaligned"
