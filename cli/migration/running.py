"""How each pod that runs would be counted, and which nodes that closes."""

from collections import Counter
from collections.abc import Iterable
from typing import Literal

import msgspec

from allocation import hami, holding
from allocation.errors import AllocationError
from allocation.names import ALLOCATION, HAMI_ALLOCATED
from allocation.settings import AllocationSettings
from cli.migration.findings import Finding
from scheduler.objects import Pod

Counted = Literal["ours", "HAMi's", "HAMi's, misaligned", "uncounted"]


class Running(msgspec.Struct, frozen=True):
    """The GPU pods that have a node and are not finished: how many are counted how, and where they are."""

    counted: Counter[Counted]
    nodes: Counter[str]
    namespaces: Counter[str]
    findings: tuple[Finding, ...]


def judge(pods: Iterable[Pod], settings: AllocationSettings) -> Running:
    """Judge every pod as the scheduler settles it (`scheduler.state`)."""
    counted: Counter[Counted] = Counter()
    nodes: Counter[str] = Counter()
    namespaces: Counter[str] = Counter()
    findings: list[Finding] = []
    for pod in pods:
        node = pod.spec.node_name
        if not node or pod.finished:
            continue
        try:
            held = holding.of_pod(pod.spec, pod.metadata.annotations, node=node, settings=settings)
        except AllocationError as error:
            counted["uncounted"] += 1
            nodes[node] += 1
            namespaces[pod.metadata.namespace] += 1
            findings.append(
                Finding(
                    "blocks",
                    (f"pod {pod}",),
                    f"its node {node} is closed for new GPU pods: it runs there uncounted: {error}",
                    "let it end, or delete it, so that it is made anew after the switch",
                )
            )
            continue
        if held is None:
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
                    "HAMi lost places in its allocation string (issue 2899); its entries are counted from the end",
                )
            )
    return Running(counted, nodes, namespaces, tuple(findings))


def _how(pod: Pod) -> Counted:
    if ALLOCATION in pod.metadata.annotations:
        return "ours"
    places = len(hami.decode_devices(pod.metadata.annotations[HAMI_ALLOCATED]))
    return "HAMi's" if places == len(pod.spec.init_containers) + len(pod.spec.containers) else "HAMi's, misaligned"
