"""A replica of the extender campaigns and leads only while its own kube-scheduler leads."""

import asyncio

from cluster.api import Api
from cluster.election import Election, ElectionSettings
from cluster.lease import Lease, LeaseMeta, LeaseSpec
from scheduler.kube_scheduler_lease import KubeSchedulerLease
from scheduler.settings import KubeSchedulerSettings
from tests.cluster.support.leases import Leases, no_epoch

FAST = ElectionSettings(lease_seconds=0.3, renew_deadline_seconds=0.2, retry_seconds=0.01)


def held_by(holder: str | None) -> Lease:
    """Return the Lease of the kube-schedulers, held by `holder`."""
    return Lease(LeaseMeta(name="kube-scheduler", namespace="kube-system"), LeaseSpec(holder))


def followed_lease(identity: str = "host-a") -> KubeSchedulerLease:
    """Return an instance without an informer; tests set the Lease."""
    return KubeSchedulerLease(Api.__new__(Api), KubeSchedulerSettings(identity=identity))


def test_own_kube_scheduler_is_recognised_by_the_name_before_the_underscore() -> None:
    """The identity of a kube-scheduler is `<host>_<uuid>`; a host with a longer name is another one."""
    kube_scheduler = followed_lease()
    assert not kube_scheduler.leads()
    for holder, expected in (("host-a_1", True), ("host-ab_1", False), ("host-b_1", False), ("host-a", False)):
        kube_scheduler._set(held_by(holder), None)
        assert kube_scheduler.leads() is expected, holder
    kube_scheduler._set(held_by("host-a_2"), None)
    assert kube_scheduler.leads()
    kube_scheduler._set(held_by(None), None)
    assert not kube_scheduler.leads()
    kube_scheduler._set(held_by("host-a_2"), None)
    kube_scheduler._drop(held_by("host-a_2"))
    assert not kube_scheduler.leads()


async def test_the_replica_leads_only_while_its_kube_scheduler_leads() -> None:
    """Before, it sends no request. When another kube-scheduler leads, it is no longer trusted and frees the Lease."""
    api, kube_scheduler = Leases(), followed_lease()
    calls, often = 0, asyncio.Event()

    def may_lead() -> bool:
        nonlocal calls
        calls += 1
        if calls % 5 == 0:
            often.set()
        return kube_scheduler.leads()

    election = Election(api, namespace="n", name="l", identity="us", settings=FAST, may_lead=may_lead)
    winning = asyncio.create_task(election.win(last_epoch=no_epoch))
    async with asyncio.timeout(20):
        await often.wait()
        assert election.is_standing_by
        assert api.asked == 0
        kube_scheduler._set(held_by("host-a_1"), None)
        term = await winning
        assert election.is_trusted
        holding = asyncio.create_task(election.hold())
        often.clear()
        await often.wait()
        assert not holding.done()
        kube_scheduler._set(held_by("host-b_1"), None)
        assert not election.is_trusted
        await holding
        await election.release()
    assert term.epoch == 1
    assert api.spec is not None
    assert api.spec["holderIdentity"] == ""
