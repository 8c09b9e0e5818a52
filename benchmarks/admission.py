"""The webhook in a process of its own, asked by another over TLS with open connections. Beside it the bare server.

The floor is the same aiohttp server that answers the same bytes without looking at the request.
"""

import asyncio
import logging
import multiprocessing
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection

import msgspec
from aiohttp import web

from allocation.settings import AllocationSettings
from benchmarks import http_load
from benchmarks.results import Row, Sample, percentile
from certs.leaf import ServerNames
from certs.source import IssuedSource, listener_context
from certs.x509 import new_authority
from webhook.admission import Admission
from webhook.metrics import Metrics
from webhook.routes import LARGEST_REVIEW, Health
from webhook.server import serving
from webhook.settings import WebhookSettings

NAME = "admission"
_HOST = "127.0.0.1"
_NAMES = ServerNames(("localhost",), (_HOST,))
_RATE, _P99_MS, _LARGE_MS = 8000, 6.0, 50.0


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes seconds and its figures mean nothing."""
    requests = 200 if smoke else 40_000
    body = review(containers=1, padding=2_400)
    for connections in (1, 32):
        bare = _measure("bare", body, connections=connections, requests=requests)
        ours = _measure("webhook", body, connections=connections, requests=requests)
        what = f"webhook, TLS, {len(body)} bytes, {connections} connections"
        rate, floor = len(ours[1]) / ours[0], len(bare[1]) / bare[0]
        p99 = percentile(ours[1], 99) * 1e3
        target = f"≥ {_RATE} a second, p99 ≤ {_P99_MS:g} ms" if connections > 1 else ""
        passed = rate >= _RATE and p99 <= _P99_MS if target else None
        yield (
            Row(
                NAME,
                what,
                f"{rate:.0f} a second, p50 {percentile(ours[1], 50) * 1e3:.2f} ms, p99 {p99:.2f} ms",
                f"{rate / floor:.2f} of a bare server's {floor:.0f}, p99 {percentile(bare[1], 99) * 1e3:.2f} ms",
                target,
                passed,
            ),
            Sample(NAME, what, ours[1]),
        )
    large = review(containers=200, padding=900_000)
    _, seconds = _measure("webhook", large, connections=1, requests=5 if smoke else 200)
    what = f"webhook, TLS, {len(large) / 2**20:.2f} MiB, 200 containers"
    p99 = percentile(seconds, 99) * 1e3
    figure = f"p50 {percentile(seconds, 50) * 1e3:.1f} ms, p99 {p99:.1f} ms"
    yield Row(NAME, what, figure, "", f"≤ {_LARGE_MS:g} ms", p99 <= _LARGE_MS), Sample(NAME, what, seconds)


def review(*, containers: int, padding: int) -> bytes:
    """Answer a review of a new pod whose containers all ask for a GPU, with `padding` bytes that nobody reads."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3k", "nvidia.com/gpucores": "30"}
    resources = {"limits": limits, "requests": limits}
    pod = {
        "metadata": {"generateName": "job-", "annotations": {"note": "x" * padding}},
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [
                {"name": f"c{number}", "image": "i", "resources": resources, "env": [{"name": "A", "value": "b"}]}
                for number in range(containers)
            ],
        },
    }
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "namespace": "team",
        "operation": "CREATE",
        "userInfo": {"username": "alice"},
        "object": pod,
    }
    kind = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return msgspec.json.encode({**kind, "request": request})


def _measure(kind: str, body: bytes, *, connections: int, requests: int) -> tuple[float, list[float]]:
    with _process(kind, body) as (port, authority):
        request = http_load.post("/mutate", body, host="localhost")
        trusting = ssl.create_default_context(cadata=authority)
        load = http_load.load(
            request, host=_HOST, port=port, connections=connections, requests=requests, tls=trusting, name="localhost"
        )
        return asyncio.run(load)


@contextmanager
def _process(kind: str, body: bytes) -> Iterator[tuple[int, str]]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_main, args=(kind, body, theirs), daemon=True)
    process.start()
    try:
        if not ours.poll(30):
            raise SystemExit("admission: the server did not start in 30 s")
        yield ours.recv()
    finally:
        process.terminate()
        process.join(10)


def _main(kind: str, body: bytes, told: Connection) -> None:
    """Serve until terminated; tells the port and the authority's certificate."""
    # A process logs a line per review, so this one does, to nowhere.
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", filename=os.devnull
    )
    asyncio.run(_webhook(told) if kind == "webhook" else _bare(body, told))


async def _webhook(told: Connection) -> None:
    source, authority = _source()
    settings = WebhookSettings(host=_HOST, port=0, metrics_port=0)
    health, metrics = Health(), Metrics()
    health.ready = True
    admission = _admission(settings, metrics)
    async with serving(admission=admission, health=health, metrics=metrics, source=source, settings=settings) as ports:
        told.send((ports.reviews, authority))
        await asyncio.Event().wait()


async def _bare(body: bytes, told: Connection) -> None:
    source, authority = _source()
    answer = _admission(WebhookSettings(), Metrics()).answer(body)

    async def same(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=answer, content_type="application/json")

    application = web.Application(client_max_size=LARGEST_REVIEW)
    application.add_routes([web.post("/mutate", same)])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, _HOST, 0, ssl_context=listener_context(source)).start()
    told.send((runner.addresses[0][1], authority))
    await asyncio.Event().wait()


def _admission(settings: WebhookSettings, metrics: Metrics) -> Admission:
    return Admission(allocation=AllocationSettings(), settings=settings, metrics=metrics, quotas=lambda _: {})


def _source() -> tuple[IssuedSource, str]:
    authority = new_authority("benchmark", lifetime=timedelta(days=1), now=datetime.now(UTC))
    return IssuedSource(authority, names=_NAMES, now=datetime.now(UTC)), authority.certificate_pem.decode()
