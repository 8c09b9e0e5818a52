"""Who leads, and how a term ends."""

from __future__ import annotations

import asyncio

import pytest

from cluster.election import Election, ElectionSettings
from tests.cluster.leases import Leases, no_epoch

FAST = ElectionSettings(lease_seconds=0.3, renew_deadline_seconds=0.2, retry_seconds=0.001)


@pytest.mark.parametrize("turns", range(8))
async def test_a_release_meets_a_renewal(turns: int) -> None:
    """Wherever the renewal is when the release comes: the Lease is free afterwards, and nobody trusts it."""
    api = Leases()
    election = Election(api, namespace="n", name="l", identity="us", settings=FAST)
    await election.win(last_epoch=no_epoch)
    holding = asyncio.create_task(election.hold())
    api.being_asked.clear()
    async with asyncio.timeout(5):
        await api.being_asked.wait()  # the renewal has begun
        for _ in range(turns):
            await asyncio.sleep(0)
        await election.release()
        assert api.spec is not None
        assert api.spec["holderIdentity"] == ""
        assert not election.is_trusted
        await holding
    assert not election.is_trusted
