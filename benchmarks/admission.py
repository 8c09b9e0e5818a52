"""Throughput and latency of the webhook in a process of its own, over TLS with keep-alive connections.

The floor is a bare aiohttp server that sends the same response without reading the request.
"""

import asyncio
import math
import os
import ssl
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import uvloop
from aiohttp import web

from allocation.settings import AllocationSettings
from benchmarks import http_load, machine, profile, reviews, subprocesses
from benchmarks.pace import within
from benchmarks.results import Row, Sample, percentile
from certs.leaf import ServerNames
from certs.source import IssuedSource, listener_context
from certs.x509 import new_authority
from cluster import logs, process
from cluster.logs import LogSettings
from webhook.admission import Admission
from webhook.claims import ReadClaim
from webhook.metrics import Metrics
from webhook.quotas import Quotas
from webhook.routes import LARGEST_REVIEW, Health
from webhook.server import serving
from webhook.settings import WebhookSettings

NAME = "admission"
_HOST = "127.0.0.1"
_NAMES = ServerNames(("localhost",), (_HOST,))
_LARGE_MS = 50.0
_UNLIKE = 4096  # pods, more than the mutation cache holds


class _Load(msgspec.Struct, frozen=True):
    """The result of a load: total seconds, seconds per request, and CPU seconds of the server and of the client."""

    took: float
    seconds: list[float]
    server_cpu: float
    own_cpu: float

    @property
    def rate(self) -> float:
        """Requests per second."""
        return len(self.seconds) / self.took

    def cost(self) -> str:
        """Return the CPU time per request of both sides, formatted."""
        server, own = (cpu / len(self.seconds) * 1e6 for cpu in (self.server_cpu, self.own_cpu))
        return f"{server:.0f} µs of CPU a request, the client {own:.0f}"


class _Target(msgspec.Struct, frozen=True):
    """The least rate and the highest 99th percentile, as parts and multiples of those of the bare server."""

    rate: float
    p99: float = math.inf

    def __str__(self) -> str:
        """Return the target in words."""
        return f"≥ {self.rate:g} × the bare server" + (f", p99 ≤ {self.p99:g} ×" if self.p99 < math.inf else "")

    def holds(self, rate: float, p99: float) -> bool:
        """Return whether ratios to the bare server reach the target."""
        return rate >= self.rate and p99 <= self.p99


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes seconds and its figures mean nothing."""
    requests = 200 if smoke else 40_000
    template, unlike = reviews.of_a_template(64), reviews.all_unlike(_UNLIKE)
    for connections, kind, bodies, target in (
        (1, "pods of one template", template, None),
        (32, "pods of one template", template, _Target(0.65, 1.3)),
        (32, "no pod like another", unlike, _Target(0.5)),
    ):
        count = requests if connections > 1 else requests // 4
        bare = _measure("bare", bodies, connections=connections, requests=count)
        ours = _measure("webhook", bodies, connections=connections, requests=count)
        what = f"webhook, one process, TLS keep-alive, 4 KB review, {connections} connections, {kind}"
        p99, bare_p99 = (percentile(each.seconds, 99) * 1e3 for each in (ours, bare))
        yield (
            Row(
                NAME,
                what,
                f"{ours.rate:.0f} a second, p50 {percentile(ours.seconds, 50) * 1e3:.2f} ms, p99 {p99:.2f} ms;"
                f" {ours.cost()}",
                f"{ours.rate / bare.rate:.2f} of a bare aiohttp server's {bare.rate:.0f}, p99 {bare_p99:.2f} ms;"
                f" {bare.cost()}",
                str(target or ""),
                target.holds(ours.rate / bare.rate, p99 / bare_p99) if target else None,
            ),
            Sample(NAME, what, ours.seconds),
        )
    large = reviews.large(size=2**20, containers=200)
    load = _measure("webhook", [large], connections=1, requests=5 if smoke else 200)
    what = "webhook, TLS, 1 MiB pod with 200 containers"
    p99 = percentile(load.seconds, 99) * 1e3
    figure = f"p50 {percentile(load.seconds, 50) * 1e3:.1f} ms, p99 {p99:.1f} ms"
    yield (
        Row(NAME, what, figure, "", f"! p99 ≤ {_LARGE_MS:g} ms", within(p99, _LARGE_MS)),
        Sample(NAME, what, load.seconds),
    )


def flame(path: Path) -> None:
    """Write a flame graph of the webhook under reviews of pods of one template, over 32 connections."""
    _measure("webhook", reviews.of_a_template(64), connections=32, requests=40_000, flame=path)


def _measure(
    kind: str, bodies: Sequence[bytes], *, connections: int, requests: int, flame: Path | None = None
) -> _Load:
    with subprocesses.running(_main, kind, bodies[0], what="the server") as (pid, (port, authority)):
        posts = [http_load.post("/mutate?timeout=5s", body, host="localhost") for body in bodies]
        trusting = ssl.create_default_context(cadata=authority)

        def load(count: int) -> tuple[float, list[float]]:
            return uvloop.run(
                http_load.load(
                    *posts,
                    host=_HOST,
                    port=port,
                    connections=connections,
                    requests=count,
                    tls=trusting,
                    name="localhost",
                )
            )

        load(max(connections, requests // 20))  # warm-up: the server must have handled requests before
        server, own = machine.cpu_seconds(pid), time.process_time()
        with profile.recorded(pid, flame) if flame else nullcontext():
            took, seconds = load(requests)
        return _Load(took, seconds, machine.cpu_seconds(pid) - server, time.process_time() - own)


def _main(kind: str, body: bytes, pipe: Connection) -> None:
    """Serve until terminated; send the port and the authority's certificate to `pipe`."""
    # The webhook logs a line per review; the benchmark must pay for that as well.
    with Path(os.devnull).open("w") as sys.stderr:
        logs.set_up(LogSettings())
        uvloop.run(_webhook(pipe) if kind == "webhook" else _bare(body, pipe))


async def _webhook(pipe: Connection) -> None:
    source, authority = _source()
    settings = WebhookSettings(host=_HOST, port=0, metrics_port=0)
    health, metrics = Health(), Metrics()
    health.ready = True
    admission = _admission(settings, metrics)
    async with serving(admission=admission, health=health, metrics=metrics, source=source, settings=settings) as ports:
        process.settle()
        pipe.send((ports.reviews, authority))
        await asyncio.Event().wait()


async def _bare(body: bytes, pipe: Connection) -> None:
    source, authority = _source()
    response = _admission(WebhookSettings(), Metrics()).answer(body)

    async def same(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=response, content_type="application/json")

    application = web.Application(client_max_size=LARGEST_REVIEW)
    application.add_routes([web.post("/mutate", same)])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, _HOST, 0, ssl_context=listener_context(source)).start()
    pipe.send((runner.addresses[0][1], authority))
    await asyncio.Event().wait()


class _NoClaims:
    """No GpuClaim exists, and no pod of the benchmark names one."""

    def cached(self, _namespace: str, _name: str) -> None:
        return None

    async def read(self, _namespace: str, _name: str) -> ReadClaim:
        return ReadClaim()


def _admission(settings: WebhookSettings, metrics: Metrics) -> Admission:
    return Admission(
        allocation=AllocationSettings(),
        settings=settings,
        metrics=metrics,
        quotas=lambda _: Quotas(),
        claims=_NoClaims(),
        memberships=None,
        bindings=None,
    )


def _source() -> tuple[IssuedSource, str]:
    authority = new_authority("benchmark", lifetime=timedelta(days=1), now=datetime.now(UTC))
    return IssuedSource(authority, names=_NAMES, now=datetime.now(UTC)), authority.certificate_pem.decode()
