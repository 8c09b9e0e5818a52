"""Webhook processes on the suite's cluster, and a load of pods that they admit."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from certs.settings import RotateSettings
from cluster.errors import ApiError
from cluster.resource import PODS
from lab import health, kubeconfig, manifests, wait
from tests.support import namespaces
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from cluster.api import Api
    from lab.layout import Layout

TEAM = "rotation"
POLL_S = 0.1
SETTLE_S = 0.5
LIMITS = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}
CONTAINERS = [{"name": "main", "image": "none", "resources": {"limits": LIMITS}}]
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "load-"},
    "spec": {"containers": CONTAINERS},
}


@dataclass
class Replica:
    """A webhook process with its own identity."""

    layout: Layout
    port: int
    metrics_port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """The HOST:PORT of the listener."""
        return f"127.0.0.1:{self.port}"

    def start(self, *more: str, poll_seconds: float = POLL_S) -> None:
        """Start the process and wait until it is ready."""
        identity = kubeconfig.service_account_kubeconfig(
            self.layout, namespace="tranche-system", name="tranche-webhook"
        )
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "webhook", "--kubeconfig", str(identity), "--host", "127.0.0.1"),
                *("--port", str(self.port), "--metrics-port", str(self.metrics_port)),
                *("--dns-names", "localhost", "--ip-addresses", "127.0.0.1", "--drain-seconds", "0"),
                *("--certificates-canary-name", "localhost"),
                *("--certificates-poll-seconds", str(poll_seconds)),
                *("--certificates-settle-seconds", str(SETTLE_S)),
                *more,
            ]
        )
        wait.until(
            lambda: health.probe(f"http://127.0.0.1:{self.metrics_port}/readyz"),
            what="webhook ready",
            timeout_s=PATIENCE_S,
        )

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(PATIENCE_S)
            self.process = None


@dataclass
class Load:
    """The results of a load of pods.

    Attributes:
        admitted: the number of pods that the webhook prepared.
        failures: the reason for each other pod.
        slowest: seconds of the slowest response.
        seconds: the duration of the load.
    """

    admitted: int = 0
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Pods a second."""
        return self.admitted / self.seconds


def with_team(control_plane: Layout) -> Layout:
    """Return the suite's cluster with our manifests and a namespace that opted in."""
    manifests.install(control_plane)
    namespaces.create(control_plane, TEAM, {"gpu.scheduling/injection": "enabled"})
    return control_plane


@asynccontextmanager
async def load(api: Api, *, workers: int = 3, rate: float = 0.0) -> AsyncIterator[Load]:
    """Create GPU pods as dry runs while the block runs, with `workers` connections and `rate` pods a second.

    Each worker sends at fixed times, so a slow response is followed by the requests that were due meanwhile.
    """
    results, loop = Load(), asyncio.get_running_loop()
    begin = loop.time()

    async def work(number: int) -> None:
        turn = number
        while True:
            if rate:
                await asyncio.sleep(max(0.0, begin + turn / rate - loop.time()))
                turn += workers
            sent = loop.time()
            if failure := await fault(api):
                results.failures.append(failure)
            else:
                results.admitted += 1
            results.slowest = max(results.slowest, loop.time() - sent)

    tasks = [asyncio.create_task(work(number)) for number in range(workers)]
    try:
        yield results
    finally:
        results.seconds = loop.time() - begin
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in ended)


async def fault(api: Api) -> str:
    """Create a GPU pod as a dry run; return the reason why it is not prepared, or an empty string."""
    try:
        body = await api.request("POST", PODS.path(namespace=TEAM), params={"dryRun": "All"}, body=POD)
    except ApiError as error:
        return str(error)
    spec = json.loads(body)["spec"]
    variables = {entry["name"] for entry in spec["containers"][0].get("env", ())}
    return "" if spec["schedulerName"] == "tranche" and "CUDA_VISIBLE_DEVICES" in variables else f"not mutated: {spec}"


async def failed_calls(api: Api) -> float:
    """Return how often the API server has skipped our webhook because a call of it failed."""
    metrics = (await api.request("GET", "/metrics")).decode()
    counts = re.findall(
        r"^apiserver_admission_webhook_fail_open_count\{[^}]*gpu\.scheduling[^}]*\} (\S+)", metrics, re.MULTILINE
    )
    return sum(map(float, counts))


async def is_admitted(api: Api) -> bool:
    """Whether the webhook prepares a GPU pod."""
    return not await fault(api)


async def eventually(condition: Callable[[], Awaitable[bool]], *, seconds: float = PATIENCE_S) -> None:
    """Wait until a condition on the API server is met."""
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 -- it asks the API server
            await asyncio.sleep(0.05)


def rotate_settings(**options: Any) -> RotateSettings:
    """Return settings of a fast rotation, by default of the authority too."""
    options.setdefault("ca", True)
    return RotateSettings(settle_seconds=SETTLE_S, poll_seconds=POLL_S, timeout_seconds=PATIENCE_S, **options)


def now() -> datetime:
    """Return the real time, which TLS uses."""
    return datetime.now(UTC)
