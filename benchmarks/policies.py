"""What our admission policies take of a pod's creation, ordinary pods above all: they are most of any cluster's.

Two namespaces, one of which the policy of new pods leaves out. The same pod is created in the one and in the other by
turns, one at a time, and as a dry run: what is stored, and where, is the same in both.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import uvloop

from allocation import names
from benchmarks import cluster
from benchmarks.results import Row, Sample, percentile
from cluster.api import Api
from cluster.errors import ApiError
from cluster.resource import NAMESPACES, PODS, Resource
from lab import kubectl, manifests

NAME = "policies"
_POLICY: Final = "tranche-creation"
_WITH, _WITHOUT = "with-policy", "without-policy"
_PATIENCE_S = 60.0
_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes as long as a control plane needs to start, and its figures mean nothing."""
    for kind, (guarded, free) in uvloop.run(_measure(pods=20 if smoke else 2_000)).items():
        half, most = ((percentile(guarded, at) - percentile(free, at)) * 1e3 for at in (50, 99))
        what = f"added latency of the creation of {kind} by the policies"
        yield (
            Row(
                NAME,
                what,
                f"p50 {half:+.2f} ms, p99 {most:+.2f} ms",
                f"with p50 {percentile(guarded, 50) * 1e3:.2f}, p99 {percentile(guarded, 99) * 1e3:.2f} ms;"
                f" without p50 {percentile(free, 50) * 1e3:.2f}, p99 {percentile(free, 99) * 1e3:.2f} ms",
            ),
            Sample(NAME, what, guarded),
        )


async def _measure(*, pods: int) -> dict[str, tuple[list[float], list[float]]]:
    """Answer seconds with and without the policy, by the kind of pod."""
    ordinary, gpu = cluster.plain("p", scheduler="default-scheduler"), cluster.fractional("p")
    kinds = {"an ordinary pod with annotations": ordinary, "a GPU pod as the webhook leaves it": gpu}
    taken: dict[str, tuple[list[float], list[float]]] = {kind: ([], []) for kind in kinds}
    with cluster.running() as layout:
        manifests.install(layout)
        rule = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [_WITHOUT]}
        patch = {"spec": {"matchResources": {"namespaceSelector": {"matchExpressions": [rule]}}}}
        binding = ("validatingadmissionpolicybinding", _POLICY)
        kubectl.run(layout, "patch", *binding, "--type", "merge", "-p", msgspec.json.encode(patch).decode())
        async with cluster.client(layout.kubeconfig) as api:
            for namespace in (_WITH, _WITHOUT):
                await api.create(NAMESPACES, {"metadata": {"name": namespace}})
                await api.create(_ACCOUNTS, {"metadata": {"name": "default"}}, namespace=namespace)
            await _until_guarded(api)
            for number in range(pods):
                for kind, pod in kinds.items():
                    turns = list(zip((_WITH, _WITHOUT), taken[kind], strict=True))
                    for namespace, seconds in turns if number % 2 else reversed(turns):
                        begin = time.perf_counter()
                        await _try(api, namespace, pod, annotations={"checksum/config": "1", "scrape": "true"})
                        seconds.append(time.perf_counter() - begin)
    return taken


async def _try(api: Api, namespace: str, pod: dict[str, Any], *, annotations: dict[str, str]) -> None:
    meta = {"name": "p", "annotations": annotations}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod["spec"]}
    await api.request("POST", PODS.path(namespace=namespace), params={"dryRun": "All"}, body=body)


async def _until_guarded(api: Api) -> None:
    """Wait until the policy refuses in the one namespace what it does not look at in the other."""
    pod = cluster.plain("p", scheduler="default-scheduler")
    for _ in range(int(_PATIENCE_S * 10)):
        found = []
        for namespace in (_WITH, _WITHOUT):
            try:
                await _try(api, namespace, pod, annotations={names.ALLOCATED: "0"})
            except ApiError:
                found.append(namespace)
        if found == [_WITH]:
            return
        await asyncio.sleep(0.1)
    raise SystemExit(f"policies: {_POLICY} is not in force after {_PATIENCE_S:g} s")
