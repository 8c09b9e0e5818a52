"""Webhook processes on the suite's cluster, and pods that are created before them all the time."""

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
from lab import health, kubeconfig, kubectl, manifests, wait

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from cluster.api import Api
    from lab.layout import Layout

TEAM = "rotation"
POLL_S = 0.1
SETTLE_S = 0.5
READY_S = 30.0
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
        """Where it serves."""
        return f"127.0.0.1:{self.port}"

    def start(self, *more: str, poll_seconds: float = POLL_S) -> None:
        """Start it and wait until it is ready."""
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
            timeout_s=READY_S,
        )

    def kill(self) -> None:
        """End it without a word."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(READY_S)
            self.process = None


@dataclass
class Load:
    """What became of the pods.

    Attributes:
        admitted: how many were as the webhook leaves them.
        failures: what was wrong with each other.
        slowest: seconds of the longest answer.
        seconds: how long pods were created.
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
    """The suite's cluster with our manifests and a namespace that opted in."""
    manifests.install(control_plane)
    kubectl.apply(control_plane, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
    kubectl.run(control_plane, "label", "namespace", TEAM, "gpu.scheduling/injection=enabled")
    wait.until(
        lambda: kubectl.run(control_plane, "-n", TEAM, "get", "serviceaccount", "default", "--ignore-not-found"),
        what=f"ServiceAccount default in {TEAM}",
        timeout_s=READY_S,
    )
    return control_plane


@asynccontextmanager
async def load(api: Api, *, workers: int = 3, rate: float = 0.0) -> AsyncIterator[Load]:
    """Create GPU pods all the time, of which the API server keeps none, over so many connections, so many a second.

    Each worker has its turn at fixed times, so a slow answer is followed by those that were due meanwhile.
    """
    made, loop = Load(), asyncio.get_running_loop()
    begin = loop.time()

    async def work(number: int) -> None:
        turn = number
        while True:
            if rate:
                await asyncio.sleep(max(0.0, begin + turn / rate - loop.time()))
                turn += workers
            sent = loop.time()
            if why := await fault(api):
                made.failures.append(why)
            else:
                made.admitted += 1
            made.slowest = max(made.slowest, loop.time() - sent)

    tasks = [asyncio.create_task(work(number)) for number in range(workers)]
    try:
        yield made
    finally:
        made.seconds = loop.time() - begin
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in ended)


async def fault(api: Api) -> str:
    """Create a GPU pod; answer why it is not as the webhook leaves it, empty where it is."""
    try:
        body = await api.request("POST", PODS.path(namespace=TEAM), params={"dryRun": "All"}, body=POD)
    except ApiError as error:
        return str(error)
    spec = json.loads(body)["spec"]
    variables = {entry["name"] for entry in spec["containers"][0].get("env", ())}
    return "" if spec["schedulerName"] == "tranche" and "CUDA_VISIBLE_DEVICES" in variables else f"not mutated: {spec}"


async def failed_calls(api: Api) -> float:
    """Answer how often the API server has passed our webhook by because a call of it failed."""
    metrics = (await api.request("GET", "/metrics")).decode()
    counted = re.findall(
        r"^apiserver_admission_webhook_fail_open_count\{[^}]*gpu\.scheduling[^}]*\} (\S+)", metrics, re.MULTILINE
    )
    return sum(map(float, counted))


async def is_admitted(api: Api) -> bool:
    """Whether a GPU pod is as the webhook leaves it."""
    return not await fault(api)


async def eventually(condition: Callable[[], Awaitable[bool]], *, seconds: float = READY_S) -> None:
    """Wait until a question to the API server is answered with yes; each question takes its time."""
    async with asyncio.timeout(seconds):
        while not await condition():
            pass


def rotate_settings(**told: Any) -> RotateSettings:
    """Answer settings of a hasty rotation, of the authority too unless told otherwise."""
    told.setdefault("ca", True)
    return RotateSettings(settle_seconds=SETTLE_S, poll_seconds=POLL_S, timeout_seconds=READY_S, **told)


def now() -> datetime:
    """TLS goes by the real clock."""
    return datetime.now(UTC)
