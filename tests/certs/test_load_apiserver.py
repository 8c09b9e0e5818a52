"""Many rotations under load: two replicas behind one address and a real API server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from certs import authority_secret, ca_bundle
from certs.probe import served_certificate
from certs.rotate import rotate
from cluster.api import Api
from cluster.connect import connect
from lab.balancer import Balancer
from lab.layout import Port
from tests.certs.support import replicas
from tests.certs.support.replicas import Replica
from tests.support.depth import repetitions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

ROTATIONS = repetitions(2, 20)
CONNECTIONS = 32
PODS_A_SECOND = float(repetitions(60, 200))
POLL_S = 0.3
BOUNDARIES = 6  # lines of `rotate --ca`: signer, announced, published, promoted, served, served
FREE_PORTS = 20


@pytest.fixture
async def api(installed: Layout) -> AsyncIterator[Api]:
    """Return an administrator's client of the API server."""
    async with connect(program="tranche-test", kubeconfig=str(installed.kubeconfig)) as connection:
        yield Api(connection)


@pytest.fixture
async def balancer(installed: Layout, api: Api) -> AsyncIterator[Balancer]:
    """Run two replicas behind a balancer that the API server calls; pods are admitted when this yields."""
    free = installed.base_port + FREE_PORTS
    running = [Replica(installed, free + 2 * number, free + 2 * number + 1) for number in range(2)]
    balancer = Balancer(tuple(each.address for each in running))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(balancer.listening(installed.port(Port.WEBHOOK)))
        for each in running:
            stack.callback(each.kill)
            await asyncio.to_thread(each.start, poll_seconds=POLL_S)
        await replicas.eventually(lambda: replicas.is_admitted(api))
        yield balancer


async def test_rotations_under_load_fail_no_admission(api: Api, balancer: Balancer) -> None:
    """Rotations of leaves and of the authority in turns reach both replicas: no pod fails, no connection is reset."""
    before = await replicas.failed_calls(api)
    authorities, leaves = set(), set()
    async with replicas.load(api, workers=CONNECTIONS, rate=PODS_A_SECOND) as load:
        for number in range(ROTATIONS):
            settings = replicas.rotate_settings(ca=number % 2 == 1, probe=balancer.addresses)
            await rotate(api, settings=settings, report=lambda _line: None)
            authorities.add((await authority_secret.read(api, now=replicas.now())).authorities.signing.certificate)
            leaves |= {await served_certificate(address) for address in balancer.addresses}
    print(  # noqa: T201 -- figures for the record
        f"{load.admitted} pods admitted in {load.seconds:.1f} s: {load.rate:.0f}/s of {PODS_A_SECOND:.0f}/s requested"
        f" over {CONNECTIONS} connections, slowest {load.slowest:.2f} s; {ROTATIONS} rotations,"
        f" {len(load.failures)} failures, {len(balancer.broken)} of {balancer.connections} webhook connections broken"
    )
    assert load.failures == []
    assert balancer.broken == []
    assert await replicas.failed_calls(api) == before
    assert len(authorities) == ROTATIONS // 2 + 1
    assert len(leaves) == ROTATIONS * len(balancer.addresses)


async def test_next_command_completes_a_rotation_killed_at_any_step(
    installed: Layout, api: Api, balancer: Balancer
) -> None:
    """SIGKILL before the first line and after each line: the next run succeeds, and no pod fails meanwhile."""
    command = [
        *(sys.executable, "-m", "certs", "rotate", "--ca", "--kubeconfig", str(installed.kubeconfig)),
        *("--probe", ",".join(balancer.addresses), "--settle-seconds", "1", "--poll-seconds", "0.2"),
    ]
    async with replicas.load(api, workers=4, rate=20) as load:
        for boundary in range(BOUNDARIES + 1):
            old = (await authority_secret.read(api, now=replicas.now())).authorities.signing.certificate
            process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
            assert process.stdout is not None
            for _ in range(boundary):
                assert await process.stdout.readline()
            process.kill()
            await process.wait()
            again = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            output, errors = await again.communicate()
            assert (again.returncode, errors) == (0, b""), f"killed after line {boundary}"
            assert b"verified by an admission" in output.splitlines()[-1]
            stored = (await authority_secret.read(api, now=replicas.now())).authorities
            assert (stored.signing.certificate != old, stored.announced) == (True, None)
            assert set((await ca_bundle.read(api)).bundles.values()) == {stored.bundle}
    assert load.failures == []
    assert balancer.broken == []
