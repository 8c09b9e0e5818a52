"""The loop that keeps a webhook's certificates, by a clock that the test moves."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import cast

from certs.leaf import LAST_CALL, LIFETIME, ServerNames, UnusableLeafError
from certs.source import IssuedSource
from certs.x509 import new_authority
from cluster.errors import ClusterError, UnreachableError
from webhook.certificates import Watch, keep
from webhook.routes import Health

# Not the real time, by which TLS goes, but near it: leaves are proven by handshakes.
BEGIN = datetime.now(UTC)
AUTHORITY = new_authority("tests", lifetime=timedelta(days=365), now=BEGIN)
POLL_S = 0.001


class World:
    """An upkeep whose API server may be away, a watch without events, and the time."""

    def __init__(self) -> None:
        self.now = BEGIN
        self.fault: ClusterError | UnusableLeafError | None = None
        self.source = IssuedSource(AUTHORITY, names=ServerNames(("webhook.svc",)), now=BEGIN)
        self.health = Health()
        self._turns = asyncio.Semaphore(0)

    async def once(self, *, now: datetime) -> tuple[str, ...]:
        """Renew as `certs.upkeep.IssuedUpkeep` does, where the API server answers."""
        self._turns.release()
        if self.fault is not None:
            raise self.fault
        self.source.renew(AUTHORITY, now=now)
        return ()

    async def changed(self, *, seconds: float) -> None:
        """Wait as long as a watch without events does."""
        await asyncio.sleep(seconds)

    async def turn(self) -> None:
        """Wait until the loop has looked at everything as it is now."""
        while not self._turns.locked():
            await self._turns.acquire()
        async with asyncio.timeout(10):
            for _ in range(2):  # when the second has begun, the first is over and its end was looked at
                await self._turns.acquire()

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Let the loop run."""
        clock: Callable[[], datetime] = lambda: self.now  # noqa: E731 -- the clock is read, not called once
        task = asyncio.create_task(keep(self, self.health, cast("Watch", self), poll_seconds=POLL_S, clock=clock))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def test_ready_once_what_is_shown_is_published() -> None:
    """Not before the first turn has ended well."""
    world = World()
    world.fault = UnreachableError("away")
    async with world.kept():
        await world.turn()
        assert not world.health.ready
        world.fault = None
        await world.turn()
        assert world.health.ready


async def test_an_api_server_that_is_away_at_renewal_does_no_harm() -> None:
    """The leaf in service serves on for two days; when the API server is back, a new one is made."""
    world = World()
    async with world.kept():
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


async def test_not_ready_before_the_end_does_harm() -> None:
    """An hour before the leaf ends callers are sent elsewhere, and back once it was renewed."""
    world = World()
    async with world.kept():
        await world.turn()
        world.fault = UnusableLeafError("no")
        world.now = world.source.leaf.ends_at - LAST_CALL - timedelta(seconds=1)
        await world.turn()
        assert world.health.ready
        world.now += timedelta(seconds=1)
        await world.turn()
        assert not world.health.ready
        world.fault = None
        await world.turn()
        assert world.health.ready


async def test_renewal_goes_by_the_wall_clock() -> None:
    """A machine that was suspended past two thirds of the leaf's life renews at its next look, not days later."""
    world = World()
    async with world.kept():
        await world.turn()
        first = world.source.leaf
        world.now = first.renew_at - timedelta(seconds=1)
        await world.turn()
        assert world.source.leaf is first
        world.now += timedelta(seconds=1)
        await world.turn()
        assert world.source.leaf is not first
