"""Leader election by a Lease."""

from __future__ import annotations

import asyncio

import pytest

from cluster.election import Election, ElectionSettings
from tests.cluster.support.leases import Leases, no_epoch

FAST = ElectionSettings(lease_seconds=0.3, renew_deadline_seconds=0.2, retry_seconds=0.001)


@pytest.mark.parametrize("turns", range(8))
async def test_release_frees_the_lease_during_a_renewal(turns: int) -> None:
    """Wherever the renewal is at that moment, the Lease is free afterwards, and the election not trusted."""
    api = Leases()
    election = Election(api, namespace="n", name="l", identity="us", settings=FAST)
    await election.win(last_epoch=no_epoch)
    holding = asyncio.create_task(election.hold())
    api.being_asked.clear()
    async with asyncio.timeout(5):
        await api.being_asked.wait()  # the renewal has started
        for _ in range(turns):
            await asyncio.sleep(0)
        await election.release()
        assert api.spec is not None
        assert api.spec["holderIdentity"] == ""
        assert not election.is_trusted
        await holding
    assert not election.is_trusted
