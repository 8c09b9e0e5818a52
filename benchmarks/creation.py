"""Latency that the webhook adds to the creation of a pod, on a real API server.

Two namespaces have opted in, so that the same policies apply to their pods, but one of them is excluded from the
MutatingWebhookConfiguration. Pods are created in both in turns, one at a time. The pods of the excluded namespace are
submitted as the webhook would have left them, so that the same object is stored.
"""

import time
from collections.abc import Iterator

import uvloop

from allocation import names
from benchmarks import cluster, webhook
from benchmarks.added import Added
from benchmarks.pace import within
from benchmarks.results import Row, Sample, milliseconds
from cluster.resource import PODS
from lab import manifests
from lab.client import client
from lab.layout import Layout

NAME = "creation"
_ADDED_MS, _ADDED_P99_MS = 1.0, 4.0
_WITH, _WITHOUT = "with-webhook", "without-webhook"


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes as long as a control plane needs to start, and its figures mean nothing."""
    taken = uvloop.run(_measure(pods=20 if smoke else 2_000))
    what = "added latency of pod creation through the API server"
    yield (
        Row(
            NAME,
            what,
            taken.figure,
            taken.reference,
            f"! p50 ≤ {_ADDED_MS:g} ms, p99 ≤ {_ADDED_P99_MS:g} ms",
            within(max(taken.at(50) / _ADDED_MS, taken.at(99) / _ADDED_P99_MS), 1.0),
        ),
        Sample(NAME, what, taken.loaded),
    )
    what = "pod creation through the API server without the webhook"
    yield Row(NAME, what, milliseconds(taken.bare)), Sample(NAME, what, taken.bare)


async def _measure(*, pods: int) -> Added:
    with cluster.running() as layout:
        manifests.install(layout)
        _leave_out(layout, _WITHOUT)
        async with cluster.client(layout.kubeconfig) as api:
            for namespace in (_WITH, _WITHOUT):
                await cluster.namespace(api, namespace, labels={names.INJECTION_LABEL: "enabled"})
            async with webhook.running(api, layout, _WITH):
                taken = Added()
                for number in range(pods):
                    for namespace, pod, seconds in (
                        (_WITH, webhook.before_admission(f"p{number}"), taken.loaded),
                        (_WITHOUT, cluster.fractional(f"p{number}"), taken.bare),
                    ):
                        pod["metadata"]["namespace"] = namespace
                        begin = time.perf_counter()
                        await api.create(PODS, pod, namespace=namespace)
                        seconds.append(time.perf_counter() - begin)
    return taken


def _leave_out(layout: Layout, namespace: str) -> None:
    api = client(layout)
    configuration = api.get("mutatingwebhookconfiguration", "tranche")
    for each in configuration["webhooks"]:
        rule = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [namespace]}
        each.setdefault("namespaceSelector", {}).setdefault("matchExpressions", []).append(rule)
    api.replace(configuration)
