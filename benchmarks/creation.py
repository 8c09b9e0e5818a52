"""Latency that the webhook adds to the creation of a pod, on a real API server.

Two namespaces have opted in, so that the same policies apply to their pods, but one of them is excluded from the
MutatingWebhookConfiguration. Pods are created in both in turns, one at a time. The pods of the excluded namespace are
submitted as the webhook would have left them, so that the same object is stored.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import uvloop

from allocation import names
from benchmarks import cluster, waiting
from benchmarks.added import Added
from benchmarks.results import Row, Sample, milliseconds
from cluster.api import Api
from cluster.errors import ApiError
from cluster.resource import PODS
from lab import health, kubeconfig, manifests, wait
from lab.client import client
from lab.layout import Layout, Port

NAME = "creation"
_ADDED_MS, _ADDED_P99_MS = 1.5, 5.0
_WITH, _WITHOUT = "with-webhook", "without-webhook"
_PATIENCE_S = 60.0


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
            taken.at(50) <= _ADDED_MS and taken.at(99) <= _ADDED_P99_MS,
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
            with _webhook(layout):
                await waiting.until(
                    lambda: _is_called(api), what="an API server that calls the webhook", seconds=_PATIENCE_S
                )
                taken = Added()
                for number in range(pods):
                    for namespace, pod, seconds in (
                        (_WITH, _before_admission(number), taken.loaded),
                        (_WITHOUT, cluster.fractional(f"p{number}"), taken.bare),
                    ):
                        pod["metadata"]["namespace"] = namespace
                        begin = time.perf_counter()
                        await api.create(PODS, pod, namespace=namespace)
                        seconds.append(time.perf_counter() - begin)
    return taken


def _before_admission(number: int) -> dict[str, Any]:
    """Return the pod that admission turns into `cluster.fractional`."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "10"}
    pod = cluster.plain(f"p{number}", scheduler="default-scheduler")
    pod["spec"]["containers"][0]["resources"] = {"limits": limits, "requests": limits}
    return pod


def _leave_out(layout: Layout, namespace: str) -> None:
    api = client(layout)
    configuration = api.get("mutatingwebhookconfiguration", "tranche")
    for webhook in configuration["webhooks"]:
        rule = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [namespace]}
        webhook.setdefault("namespaceSelector", {}).setdefault("matchExpressions", []).append(rule)
    api.replace(configuration)


@contextmanager
def _webhook(layout: Layout) -> Iterator[None]:
    identity = kubeconfig.service_account_kubeconfig(layout, namespace=names.SYSTEM_NAMESPACE, name="tranche-webhook")
    command = [
        *(sys.executable, "-m", "webhook", "--kubeconfig", str(identity), "--host", "127.0.0.1"),
        *("--port", str(layout.port(Port.WEBHOOK)), "--metrics-port", str(layout.port(Port.WEBHOOK_METRICS))),
        *("--dns-names", "localhost", "--ip-addresses", "127.0.0.1", "--drain-seconds", "0"),
    ]
    with (layout.logs / "webhook.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait.until(
            lambda: health.is_alive(layout, Port.WEBHOOK_METRICS, "/readyz"), what="webhook", timeout_s=_PATIENCE_S
        )
        yield
    finally:
        process.terminate()
        process.wait(30)


async def _is_called(api: Api) -> bool:
    """Return whether the API server has loaded the webhook configuration, the caBundle and the policies."""
    pod = _before_admission(0)
    pod["metadata"] = {"generateName": "probe-", "namespace": _WITH}
    try:
        admitted = await cluster.dry_run(api, pod, namespace=_WITH)
    except ApiError:  # the policies reject a pod that no webhook has mutated
        return False
    return bool(msgspec.json.decode(admitted)["spec"]["schedulerName"] == names.SCHEDULER_NAME)
