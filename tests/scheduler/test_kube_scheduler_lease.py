"""A replica of the extender campaigns and leads only while its own kube-scheduler leads."""

import asyncio

import pytest

from cluster.api import Api
from cluster.election import Election, ElectionSettings
from cluster.lease import Lease, LeaseMeta, LeaseSpec
from scheduler.kube_scheduler_lease import KubeSchedulerLease
from scheduler.settings import KubeSchedulerSettings
from tests.cluster.support.leases import Leases, no_epoch
from tests.scheduler.support.builders import Clock

FAST = ElectionSettings(lease_seconds=0.3, renew_deadline_seconds=0.2, retry_seconds=0.01)


def held_by(holder: str | None, renewed: str = "") -> Lease:
    """Return the Lease of the kube-schedulers, held by `holder`."""
    spec = LeaseSpec(holder, renew_time=renewed)
    return Lease(LeaseMeta(name="kube-scheduler", namespace="kube-system"), spec)


def followed_lease(identity: str = "host-a", clock: Clock | None = None) -> KubeSchedulerLease:
    """Return an instance without an informer; tests set the Lease."""
    return KubeSchedulerLease(Api.__new__(Api), KubeSchedulerSettings(identity=identity), clock=clock or Clock())


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


def test_loop_needs_no_kube_scheduler() -> None:
    """It stands by next to a kube-scheduler of which another one leads, but not while none runs, or none ever did."""
    clock = Clock()
    lease = followed_lease(clock=clock)
    assert not lease.lets_loop_lead()  # nothing was read yet
    lease._informer.synced.set()
    assert lease.lets_loop_lead()
    before = held_by("host-b_1", "1")
    lease._set(before, None)
    assert not lease.lets_loop_lead()
    clock.now += 29
    assert not lease.is_silent
    lease._set(held_by("host-b_1", "2"), before)
    clock.now += 29
    lease._set(held_by("host-b_1", "2"), held_by("host-b_1", "2"))  # a list of the same
    assert not lease.lets_loop_lead()
    clock.now += 1
    assert lease.is_silent
    assert lease.lets_loop_lead()
    lease._set(held_by("host-a_1", "3"), held_by("host-b_1", "2"))
    assert not lease.is_silent
    assert lease.lets_loop_lead()


def test_silence_is_a_setting() -> None:
    """For Leases that last longer, or less long, than those of kube-scheduler by default."""
    clock = Clock()
    lease = KubeSchedulerLease(Api.__new__(Api), KubeSchedulerSettings(silent_seconds=60.0), clock=clock)
    clock.now += 59
    assert not lease.is_silent
    clock.now += 1
    assert lease.is_silent
    with pytest.raises(ValueError, match=r"kube_scheduler\.silent_seconds is 0\.5: it must be at least 1"):
        KubeSchedulerSettings(silent_seconds=0.5)


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
