"""Reads of GpuClaims: what the API server answers, and what happens while it does not."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from allocation.claim import ClaimDevices, ClaimSpec
from cluster.api import Api
from cluster.connection import Connection
from webhook.claims import ClusterClaims, ReadClaim

PATH = "/apis/gpu.scheduling/v1/namespaces/team/gpuclaims"
STORED = {"metadata": {"name": "pair", "namespace": "team"}, "spec": {"devices": {"count": 2}}}


@asynccontextmanager
async def claims_of(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[ClusterClaims]:
    """Yield the claims of an API server that answers every request so."""
    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with _connected(f"http://127.0.0.1:{runner.addresses[0][1]}") as claims:
            yield claims
    finally:
        await runner.cleanup()


@asynccontextmanager
async def _connected(server: str) -> AsyncIterator[ClusterClaims]:
    async def headers() -> dict[str, str]:
        return {}

    async with aiohttp.ClientSession() as session:
        yield ClusterClaims(Api(Connection(session=session, server=server, headers=headers, namespace="")))


async def test_claim_is_read_by_its_name() -> None:
    """The read is consistent: without a resourceVersion, the API server returns the newest state."""
    queries = []

    async def answer(request: web.Request) -> web.Response:
        queries.append((request.path, dict(request.query)))
        return web.json_response({"items": [STORED]})

    async with claims_of(answer) as claims:
        assert await claims.read("team", "pair") == ReadClaim(ClaimSpec(ClaimDevices(2)))
    assert queries == [(PATH, {"fieldSelector": "metadata.name=pair"})]


@pytest.mark.parametrize("status", [200, 404])
async def test_missing_claim_does_not_exist(status: int) -> None:
    """Nor does it where the API server does not serve the kind."""

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response({"items": []}, status=status)

    async with claims_of(answer) as claims:
        assert await claims.read("team", "pair") == ReadClaim()


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (500, "{}", "the API server cannot be reached"),
        (403, "{}", "the API server refuses it"),
        (200, '{"items": [{"metadata": {}, "spec": {"devices": {"count": "two"}}}]}', "it is malformed"),
        (200, "[", "it is malformed"),
    ],
)
async def test_unreadable_claim_is_a_failure(status: int, body: str, reason: str) -> None:
    """It may exist, so its pod may be admitted later."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text=body, status=status)

    async with claims_of(answer) as claims:
        assert await claims.read("team", "pair") == ReadClaim(failure=reason)


@pytest.mark.parametrize("status", [0, 429])
async def test_read_ends_in_time(status: int) -> None:
    """The API server waits five seconds for a review, whether the claim's server is silent or asks to wait."""

    async def answer(_request: web.Request) -> web.Response:
        if not status:
            await asyncio.Event().wait()
        return web.Response(status=status, headers={"Retry-After": "10"})

    begin = time.monotonic()
    async with claims_of(answer) as claims:
        assert await claims.read("team", "pair") == ReadClaim(failure="the API server did not answer within 1 s")
    assert time.monotonic() - begin < 4


async def test_unreachable_server_is_a_failure() -> None:
    """Nothing listens at its address."""
    async with _connected("http://127.0.0.1:1") as claims:
        assert await claims.read("team", "pair") == ReadClaim(failure="the API server cannot be reached")
