"""An extender leads while the kube-scheduler beside it does, and campaigns at no other time."""

import asyncio

from cluster.api import Api
from cluster.election import Election, ElectionSettings
from cluster.metadata import ObjectMeta
from scheduler.beside import Beside, _Lease, _Spec
from scheduler.settings import KubeSchedulerSettings
from tests.cluster.leases import Leases, no_epoch

FAST = ElectionSettings(lease_seconds=0.3, renew_deadline_seconds=0.2, retry_seconds=0.01)


def held_by(holder: str | None) -> _Lease:
    """Answer the kube-schedulers' Lease."""
    return _Lease(ObjectMeta(name="kube-scheduler", namespace="kube-system"), _Spec(holder))


def beside(identity: str = "host-a") -> Beside:
    """Answer one that looks at nothing but what a test tells it."""
    return Beside(Api.__new__(Api), KubeSchedulerSettings(identity=identity))


def test_ours_is_who_has_our_name_before_the_underscore() -> None:
    """kube-scheduler's identity is `<host>_<uuid>`; a host whose name ours begins with is another."""
    made = beside()
    assert not made.leads()
    for holder, expected in (("host-a_1", True), ("host-ab_1", False), ("host-b_1", False), ("host-a", False)):
        made._set(held_by(holder), None)
        assert made.leads() is expected, holder
    made._set(held_by("host-a_2"), None)
    assert made.leads()
    made._set(held_by(None), None)
    assert not made.leads()
    made._set(held_by("host-a_2"), None)
    made._drop(held_by("host-a_2"))
    assert not made.leads()


async def test_a_campaign_waits_for_its_kube_scheduler_and_ends_with_it() -> None:
    """Not a request before; trusted at once no longer when another kube-scheduler leads, and the Lease is let go."""
    api, made = Leases(), beside()
    asked, often = 0, asyncio.Event()

    def may_lead() -> bool:
        nonlocal asked
        asked += 1
        if asked % 5 == 0:
            often.set()
        return made.leads()

    election = Election(api, namespace="n", name="l", identity="us", settings=FAST, may_lead=may_lead)
    winning = asyncio.create_task(election.win(last_epoch=no_epoch))
    async with asyncio.timeout(5):
        await often.wait()
        assert election.is_standing_by
        assert api.asked == 0
        made._set(held_by("host-a_1"), None)
        term = await winning
        assert election.is_trusted
        holding = asyncio.create_task(election.hold())
        often.clear()
        await often.wait()
        assert not holding.done()
        made._set(held_by("host-b_1"), None)
        assert not election.is_trusted
        await holding
        await election.release()
    assert term.epoch == 1
    assert api.spec is not None
    assert api.spec["holderIdentity"] == ""
