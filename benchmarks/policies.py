"""Latency that the admission policies add to the creation of a pod, above all of an ordinary pod without GPUs.

The policy for new pods excludes one of two namespaces. The same pod is created in both in turns, one at a time, and
as a dry run, so that storage does not differ.
"""

import time
from collections.abc import Iterator
from typing import Any, Final

import uvloop

from allocation import names
from benchmarks import cluster, waiting
from benchmarks.added import Added
from benchmarks.pace import within
from benchmarks.results import Row, Sample
from cluster.api import Api
from cluster.errors import ApiError
from lab import manifests
from lab.client import client

NAME = "policies"
_POLICY: Final = "tranche-creation"
_ORDINARY: Final = "an ordinary pod with annotations"
_ORDINARY_MS: Final = 0.2
_WITH, _WITHOUT = "with-policy", "without-policy"
_PATIENCE_S = 60.0


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes as long as a control plane needs to start, and its figures mean nothing."""
    for kind, taken in uvloop.run(_measure(pods=20 if smoke else 2_000)).items():
        most = _ORDINARY_MS if kind == _ORDINARY else None
        what = f"added latency of the creation of {kind} by the policies"
        target, passed = (f"! p50 ≤ {most:g} ms", within(taken.at(50), most)) if most else ("", None)
        yield Row(NAME, what, taken.figure, taken.reference, target, passed), Sample(NAME, what, taken.loaded)


async def _measure(*, pods: int) -> dict[str, Added]:
    """Return seconds with and without the policy, by kind of pod."""
    ordinary, gpu = cluster.plain("p", scheduler="default-scheduler"), cluster.fractional("p")
    kinds = {_ORDINARY: ordinary, "a GPU pod as the webhook leaves it": gpu}
    taken = {kind: Added() for kind in kinds}
    with cluster.running() as layout:
        manifests.install(layout)
        rule = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [_WITHOUT]}
        patch = {"spec": {"matchResources": {"namespaceSelector": {"matchExpressions": [rule]}}}}
        client(layout).patch("validatingadmissionpolicybinding", _POLICY, patch)
        async with cluster.client(layout.kubeconfig) as api:
            for namespace in (_WITH, _WITHOUT):
                await cluster.namespace(api, namespace)
            await waiting.until(lambda: _is_guarded(api), what=f"policy {_POLICY} in force", seconds=_PATIENCE_S)
            for number in range(pods):
                for kind, pod in kinds.items():
                    turns = ((_WITH, taken[kind].loaded), (_WITHOUT, taken[kind].bare))
                    for namespace, seconds in turns if number % 2 else reversed(turns):
                        begin = time.perf_counter()
                        await _try(api, namespace, pod, annotations={"checksum/config": "1", "scrape": "true"})
                        seconds.append(time.perf_counter() - begin)
    return taken


async def _try(api: Api, namespace: str, pod: dict[str, Any], *, annotations: dict[str, str]) -> None:
    sent = {"metadata": {"name": "p", "annotations": annotations}, "spec": pod["spec"]}
    await cluster.dry_run(api, sent, namespace=namespace)


async def _is_guarded(api: Api) -> bool:
    """Return whether the policy is in force: it rejects a pod in one namespace and ignores it in the other."""
    pod, rejected = cluster.plain("p", scheduler="default-scheduler"), []
    for namespace in (_WITH, _WITHOUT):
        try:
            await _try(api, namespace, pod, annotations={names.ALLOCATED: "0"})
        except ApiError:
            rejected.append(namespace)
    return rejected == [_WITH]
