"""Leader election by a Lease."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from cluster.election import Election, ElectionSettings
from tests.cluster.support.leases import Leases, no_epoch

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_S = 5.0
FAST = ElectionSettings(lease_seconds=0.3, renew_deadline_seconds=0.2, retry_seconds=0.001)


@pytest.mark.parametrize("turns", range(8))
async def test_release_frees_the_lease_during_a_renewal(turns: int) -> None:
    """Wherever the renewal is at that moment, the Lease is free afterwards, and the election not trusted."""
    api = Leases()
    election = Election(api, namespace="n", name="l", identity="us", settings=FAST)
    await election.win(last_epoch=no_epoch)
    holding = asyncio.create_task(election.hold())
    api.being_asked.clear()
    async with asyncio.timeout(WAIT_S):
        await api.being_asked.wait()  # the renewal has started
        for _ in range(turns):
            await asyncio.sleep(0)
        await election.release()
        assert api.spec is not None
        assert api.spec["holderIdentity"] == ""
        assert not election.is_trusted
        await holding
    assert not election.is_trusted


class Slow(Leases):
    """Its responses to changes take as long as is set, on a clock of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.now = 0.0
        self.while_waiting: list[bool] = []
        self.look: Callable[[], bool] = lambda: True

    async def merge(self, resource: Any, body: Any, **given: Any) -> bytes:
        """Change the Lease."""
        response = await super().merge(resource, body, **given)
        self.now += self.seconds
        self.while_waiting.append(self.look())
        return response


async def test_trust_that_is_lost_does_not_come_back_with_a_late_renewal() -> None:
    """What has ended for want of trust would be missing in the rest of the term, so the term ends."""
    api = Slow()
    election = Election(api, namespace="n", name="l", identity="us", settings=FAST, clock=lambda: api.now)
    await election.win(last_epoch=no_epoch)
    api.look = lambda: election.is_trusted
    api.seconds = 0.9 * FAST.renew_deadline_seconds
    holding = asyncio.create_task(election.hold())
    async with asyncio.timeout(WAIT_S):
        while len(api.while_waiting) < 2:  # noqa: ASYNC110 -- the renewals are its own
            await asyncio.sleep(0)
        assert api.while_waiting == [True, False], "the second began as long after the first as that took"
        await holding
    assert not election.is_trusted
    assert api.spec is not None
    assert api.spec["holderIdentity"] == "us", "it was renewed"
