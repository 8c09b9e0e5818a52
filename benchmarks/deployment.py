"""What a user feels: from creating a Deployment of twenty pods until its containers run, on the lab's real node.

Ours ask for 3,000 MiB of a card each, in a namespace that has opted in. Beside them, in turns, pods of the default
scheduler ask for one of twenty devices that the node has as an extended resource, as with NVIDIA's device plugin; no
plugin is called for them, so that is a floor. Each Deployment is gone before the next one.
"""

import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

from allocation import names
from benchmarks.results import Row, Sample
from lab import cluster, real_node
from lab.client import client
from lab.layout import Layout

NAME: Final = "deployment"
RESOURCE: Final = "bench.example.com/device"
_BASE_PORT: Final = 32000
_MOST_RATIO: Final = 1.1
_DEADLINE_S: Final = 300.0
_NAMESPACES: Final = {"bench-tranche": {names.INJECTION_LABEL: "enabled"}, "bench-stock": dict[str, str]()}


class _Taken(msgspec.Struct, frozen=True):
    """The seconds until all pods have a node, and until all containers run."""

    bound: float
    running: float


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run has no real node, so tests/system runs it on one."""
    missing = ["a smoke run has no real node"] if smoke else real_node.unsupported()
    if missing:
        print(f"{NAME} is left out: {'; '.join(missing)}", file=sys.stderr)
        return
    with TemporaryDirectory(prefix="tranche-bench-") as folder:
        layout = Layout(root=Path(folder), base_port=_BASE_PORT)
        try:
            cluster.up(layout)
            yield measure(layout, pods=20, turns=5)
        finally:
            cluster.down(layout)


def measure(layout: Layout, *, pods: int, turns: int) -> tuple[Row, Sample]:
    """Measure on the real node of a lab in which Tranche runs, and leave nothing there."""
    api = client(layout)
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}, {RESOURCE: "1"}
    taken: dict[str, list[_Taken]] = {name: [] for name in _NAMESPACES}
    for namespace, labels in _NAMESPACES.items():
        api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}})
        _until_there(layout, "serviceaccounts", "default", namespace)
        _until_there(layout, "configmaps", "kube-root-ca.crt", namespace)
    _advertise(layout, str(pods))
    try:
        for turn in range(turns):
            for namespace, of_pod in tuple(zip(_NAMESPACES, limits, strict=True))[:: 1 - 2 * (turn % 2)]:
                taken[namespace].append(_deployed(layout, namespace, of_pod, pods))
    finally:
        _advertise(layout, None)
        for namespace in _NAMESPACES:
            api.delete("namespaces", namespace)
    ours, stock = taken.values()
    ratio = median(a.running / b.running for a, b in zip(ours, stock, strict=True))
    what = f"a Deployment of {pods} pods until its containers run"
    figure = f"{_medians(ours)}, {ratio:.2f} × an extended resource"
    floor, target = f"extended resource {_medians(stock)}", f"≤ {_MOST_RATIO:g} ×"
    row = Row(NAME, what, figure, floor, target, ratio <= _MOST_RATIO)
    return row, Sample(NAME, what, [each.running for each in ours])


def _medians(taken: list[_Taken]) -> str:
    running, bound = (median(each) for each in zip(*((one.running, one.bound) for one in taken), strict=True))
    return f"{running:.2f} s, all have a node after {bound:.2f}"


def _until_there(layout: Layout, kind: str, name: str, namespace: str) -> None:
    what = f"{kind} {name} in {namespace}"
    client(layout).until(lambda found: name in found, kind, namespace=namespace, what=what)


def _advertise(layout: Layout, amount: str | None) -> None:
    both = {key: {RESOURCE: amount} for key in ("capacity", "allocatable")}
    client(layout).patch("nodes", layout.node_name, {"status": both}, subresource="status")


def _deployed(layout: Layout, namespace: str, limits: dict[str, str], pods: int) -> _Taken:
    api, bound = client(layout), list[float]()

    def are_running(found: Mapping[str, Any]) -> bool:
        if not bound and sum("nodeName" in pod["spec"] for pod in found.values()) == pods:
            bound.append(time.perf_counter() - begin)
        statuses = [status for pod in found.values() for status in pod["status"].get("containerStatuses", ())]
        return sum("running" in status["state"] for status in statuses) == pods

    begin = time.perf_counter()
    api.create(_deployment(layout.node_name, limits, pods), namespace=namespace)
    what = f"{pods} running containers in {namespace}"
    api.until(are_running, "pods", namespace=namespace, what=what, timeout_s=_DEADLINE_S)
    running = time.perf_counter() - begin
    api.delete("deployments.apps", NAME, namespace=namespace)
    api.until(lambda found: not found, "pods", namespace=namespace, what="their end", timeout_s=_DEADLINE_S)
    return _Taken(bound[0], running)


def _deployment(node: str, limits: dict[str, str], pods: int) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "tranche.local/busybox:lab",
        "imagePullPolicy": "Never",
        "command": ["sleep", "3600"],
        "resources": {"limits": limits},
    }
    spec = {
        "containers": [container],
        "terminationGracePeriodSeconds": 1,  # with 0, a pod is gone before its containers are
        "nodeSelector": {"kubernetes.io/hostname": node},
        "tolerations": [{"operator": "Exists"}],
    }
    labels = {"app": NAME}
    template = {"metadata": {"labels": labels}, "spec": spec}
    of_pods = {"replicas": pods, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME}, "spec": of_pods}
