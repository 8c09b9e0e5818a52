"""The real webhook in front of the API server of a benchmark, and pods as users write them."""

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import msgspec

from allocation import names
from benchmarks import cluster, waiting
from cluster.api import Api
from cluster.errors import ApiError
from lab import health, kubeconfig, wait
from lab.layout import Layout, Port

_PATIENCE_S: Final = 60.0


@asynccontextmanager
async def running(api: Api, layout: Layout, namespace: str) -> AsyncIterator[int]:
    """Run the webhook, whose manifests are installed; yield its process ID once pods of `namespace` are mutated.

    The namespace exists and has opted in.
    """
    with _process(layout) as pid:
        await waiting.until(
            lambda: _is_called(api, namespace), what="an API server that calls the webhook", seconds=_PATIENCE_S
        )
        yield pid


def before_admission(name: str) -> dict[str, Any]:
    """Return the pod that admission turns into `cluster.fractional`."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "10"}
    pod = cluster.plain(name, scheduler="default-scheduler")
    pod["spec"]["containers"][0]["resources"] = {"limits": limits, "requests": limits}
    return pod


@contextmanager
def _process(layout: Layout) -> Iterator[int]:
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
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)


async def _is_called(api: Api, namespace: str) -> bool:
    """Return whether the API server has loaded the webhook configuration, the caBundle and the policies."""
    pod = before_admission("probe")
    pod["metadata"] = {"generateName": "probe-", "namespace": namespace}
    try:
        admitted = await cluster.dry_run(api, pod, namespace=namespace)
    except ApiError:  # the policies reject a pod that no webhook has mutated
        return False
    return bool(msgspec.json.decode(admitted)["spec"]["schedulerName"] == names.SCHEDULER_NAME)
