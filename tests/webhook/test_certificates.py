"""The loop that reconciles a webhook's certificates, with a clock that the test controls."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import cast

from certs.leaf import EXPIRY_MARGIN, LIFETIME, ServerNames, UnusableLeafError
from certs.source import IssuedSource
from certs.x509 import new_authority
from cluster.errors import ClusterError, UnreachableError
from webhook.certificates import ConfigurationWatch, run
from webhook.routes import Health

# Close to the real time, because handshakes test each leaf by the real time.
BEGIN = datetime.now(UTC)
AUTHORITY = new_authority("tests", lifetime=timedelta(days=365), now=BEGIN)
POLL_S = 0.001


class World:
    """A reconciler whose API server may be unreachable, a watch without events, and the time."""

    def __init__(self) -> None:
        self.now = BEGIN
        self.fault: ClusterError | UnusableLeafError | None = None
        self.source = IssuedSource(AUTHORITY, names=ServerNames(("webhook.svc",)), now=BEGIN)
        self.health = Health()
        self._turns = asyncio.Semaphore(0)

    async def reconcile(self, *, now: datetime) -> tuple[str, ...]:
        """Renew as `certs.replica_reconciler.IssuedReconciler` does, if the API server answers."""
        self._turns.release()
        if self.fault is not None:
            raise self.fault
        self.source.renew(AUTHORITY, now=now)
        return ()

    async def changed(self, *, seconds: float) -> None:
        """Wait like a watch without events."""
        await asyncio.sleep(seconds)

    async def turn(self) -> None:
        """Wait until the loop has reconciled the current state."""
        while not self._turns.locked():
            await self._turns.acquire()
        async with asyncio.timeout(30):
            for _ in range(2):  # when the second has begun, the first is complete
                await self._turns.acquire()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the loop."""
        clock: Callable[[], datetime] = lambda: self.now  # noqa: E731 -- the clock is read, not called once
        task = asyncio.create_task(
            run(self, self.health, cast("ConfigurationWatch", self), poll_seconds=POLL_S, clock=clock)
        )
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def test_ready_after_the_first_reconciliation() -> None:
    """Not before the first successful reconciliation."""
    world = World()
    world.fault = UnreachableError("away")
    async with world.running():
        await world.turn()
        assert not world.health.ready
        world.fault = None
        await world.turn()
        assert world.health.ready


async def test_unreachable_api_server_at_renewal_does_no_harm() -> None:
    """The leaf stays in service for two days; once the API server answers, a new one is issued."""
    world = World()
    async with world.running():
        await world.turn()
        first = world.source.leaf
        world.fault = UnreachableError("away")
        world.now = BEGIN + LIFETIME * 2 / 3 + timedelta(days=2)
        await world.turn()
        assert world.health.ready
        assert world.source.leaf is first
        world.fault = None
        await world.turn()
        assert world.source.leaf.ends_at > first.ends_at
        assert world.health.ready


async def test_not_ready_before_the_certificate_expires() -> None:
    """An hour before the leaf ends the process is not ready, and ready again once the leaf is renewed."""
    world = World()
    async with world.running():
        await world.turn()
        world.fault = UnusableLeafError("no")
        world.now = world.source.leaf.ends_at - EXPIRY_MARGIN - timedelta(seconds=1)
        await world.turn()
        assert world.health.ready
        world.now += timedelta(seconds=1)
        await world.turn()
        assert not world.health.ready
        world.fault = None
        await world.turn()
        assert world.health.ready


async def test_renewal_uses_the_wall_clock() -> None:
    """A machine that was suspended past two thirds of the leaf's life renews at the next poll, not days later."""
    world = World()
    async with world.running():
        await world.turn()
        first = world.source.leaf
        world.now = first.renew_at - timedelta(seconds=1)
        await world.turn()
        assert world.source.leaf is first
        world.now += timedelta(seconds=1)
        await world.turn()
        assert world.source.leaf is not first
