"""How much longer the creation of a pod takes for our admission, on a real API server.

Two namespaces that opted in, so that the same policies look at their pods, and one of them left out of the
MutatingWebhookConfiguration. Pods are created in the one and in the other by turns, one at a time. Where no webhook is
called the pods come as it would have left them, so that the same object is stored.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import uvloop

from allocation import names
from benchmarks import cluster
from benchmarks.results import Row, Sample, percentile
from cluster.api import Api
from cluster.errors import ApiError
from cluster.resource import NAMESPACES, PODS, Resource
from lab import health, kubeconfig, kubectl, manifests, wait
from lab.layout import Layout, Port

NAME = "creation"
_ADDED_MS, _ADDED_P99_MS = 1.5, 5.0
_WITH, _WITHOUT = "with-webhook", "without-webhook"
_PATIENCE_S = 60.0
_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes as long as a control plane needs to start, and its figures mean nothing."""
    ours, bare = uvloop.run(_measure(pods=20 if smoke else 2_000))
    half, most = ((percentile(ours, at) - percentile(bare, at)) * 1e3 for at in (50, 99))
    what = "added latency of pod creation through the API server"
    yield (
        Row(
            NAME,
            what,
            f"p50 {half:+.2f} ms, p99 {most:+.2f} ms",
            f"with p50 {percentile(ours, 50) * 1e3:.2f}, p99 {percentile(ours, 99) * 1e3:.2f} ms;"
            f" without p50 {percentile(bare, 50) * 1e3:.2f}, p99 {percentile(bare, 99) * 1e3:.2f} ms",
            f"! p50 ≤ {_ADDED_MS:g} ms, p99 ≤ {_ADDED_P99_MS:g} ms",
            half <= _ADDED_MS and most <= _ADDED_P99_MS,
        ),
        Sample(NAME, what, ours),
    )
    what = "pod creation through the API server without the webhook"
    figure = f"p50 {percentile(bare, 50) * 1e3:.2f} ms, p99 {percentile(bare, 99) * 1e3:.2f} ms"
    yield Row(NAME, what, figure), Sample(NAME, what, bare)


async def _measure(*, pods: int) -> tuple[list[float], list[float]]:
    with cluster.running() as layout:
        manifests.install(layout)
        _leave_out(layout, _WITHOUT)
        async with cluster.client(layout.kubeconfig) as api:
            for namespace in (_WITH, _WITHOUT):
                labels = {names.INJECTION_LABEL: "enabled"}
                await api.create(NAMESPACES, {"metadata": {"name": namespace, "labels": labels}})
                await api.create(_ACCOUNTS, {"metadata": {"name": "default"}}, namespace=namespace)
            with _webhook(layout):
                await _until_called(api)
                taken: dict[str, list[float]] = {_WITH: [], _WITHOUT: []}
                for number in range(pods):
                    for namespace, pod in ((_WITH, _asking(number)), (_WITHOUT, cluster.fractional(f"p{number}"))):
                        pod["metadata"]["namespace"] = namespace
                        begin = time.perf_counter()
                        await api.create(PODS, pod, namespace=namespace)
                        taken[namespace].append(time.perf_counter() - begin)
    return taken[_WITH], taken[_WITHOUT]


def _asking(number: int) -> dict[str, Any]:
    """Answer the pod that admission makes `cluster.fractional` of."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "10"}
    pod = cluster.plain(f"p{number}", scheduler="default-scheduler")
    pod["spec"]["containers"][0]["resources"] = {"limits": limits, "requests": limits}
    return pod


def _leave_out(layout: Layout, namespace: str) -> None:
    configuration = kubectl.get(layout, "mutatingwebhookconfiguration", "tranche")
    for webhook in configuration["webhooks"]:
        rule = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [namespace]}
        webhook.setdefault("namespaceSelector", {}).setdefault("matchExpressions", []).append(rule)
    kubectl.run(layout, "replace", "-f", "-", stdin=msgspec.json.encode(configuration).decode())


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


async def _until_called(api: Api) -> None:
    """Wait until the API server has seen configuration, caBundle and policies."""
    for _ in range(int(_PATIENCE_S * 10)):
        pod = _asking(0)
        pod["metadata"] = {"generateName": "probe-", "namespace": _WITH}
        with suppress(ApiError):  # while nobody prepares it, the policies refuse it
            path, body = PODS.path(namespace=_WITH), {"apiVersion": "v1", "kind": "Pod", **pod}
            made = await api.request("POST", path, params={"dryRun": "All"}, body=body)
            if msgspec.json.decode(made)["spec"]["schedulerName"] == names.SCHEDULER_NAME:
                return
        await asyncio.sleep(0.1)
    raise SystemExit(f"creation: the API server does not call the webhook after {_PATIENCE_S:g} s")
