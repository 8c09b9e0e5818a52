"""A gang without places for all of its pods gives back what these took, and no pod is scheduled again for that."""

from __future__ import annotations

import pytest

from allocation.allocation import Charge
from scheduler.gangs.gang import GangKey
from scheduler.holds import Hold
from tests.scheduler.support.builders import allocated, pod, state
from tests.scheduler.support.gang_driving import GangDriver, member
from tests.scheduler.support.storage import claim, mounts, storage_class, volume


def with_patient(driver: GangDriver, gang: GangKey | None = None) -> Hold:
    """Let a pod, maybe of a gang, wait for which the rest of the only card is held; return the hold."""
    patient = pod("patient", memory=1000)
    driver.add(allocated("ends", node="n1", memory=300), patient)
    fair_share = driver.state.fair_share
    rest = (Charge("GPU-n1-0", memory_mib=700, cores=0, slots=1),)
    key, rank = fair_share.key(patient), fair_share.pod_rank(patient)
    hold = Hold(patient.uid, key, rank, "n1", rest, frozenset({"uid-ends"}), cause="patience", gang=gang)
    driver.state.holds.add(hold, patient)
    return hold


async def test_a_hold_that_a_pod_of_the_gang_took_comes_back_without_a_word() -> None:
    """It comes back with the end of the trial: the second pod has no place."""
    driver = GangDriver(state("n1", cards=1))
    hold = with_patient(driver)
    driver.add(*(member(f"m{index}", memory=400, priority=1000) for index in range(2)))
    assert await driver.settle() == []
    assert driver.state.holds.of(hold.uid) is hold


async def test_what_is_left_of_a_hold_is_offered_once_the_gang_is_kept() -> None:
    """To a pod that could not have it before."""
    driver = GangDriver(state("n1", cards=1))
    hold = with_patient(driver)
    driver.add(pod("other", memory=100))
    assert await driver.settle() == []
    driver.add(*(member(f"m{index}", memory=300, priority=1000) for index in range(2)))
    assert await driver.settle() == ["m0", "m1", "other"]
    assert driver.state.holds.of(hold.uid) is None


@pytest.mark.parametrize("gang", [None, GangKey("default", "other-gang")])
async def test_what_a_single_pod_leaves_of_a_hold_is_offered_at_once(gang: GangKey | None) -> None:
    """Whether the hold was for a pod alone or for one of a gang."""
    driver = GangDriver(state("n1", cards=1))
    with_patient(driver, gang)
    driver.add(pod("other", memory=100))
    assert await driver.settle() == []
    driver.add(pod("single", memory=300, priority=1000))
    assert await driver.settle() == ["single", "other"]


async def test_a_volume_that_a_pod_of_the_gang_took_comes_back_without_a_word() -> None:
    """There is one volume for both."""
    driver = GangDriver(state("n1", cards=2))
    storage = driver.state.storage
    storage.set_class(storage_class("local"))
    storage.set_volume(volume("v", node="n1"))
    for index in range(2):
        storage.set_claim(claim(f"c{index}"))
        driver.add(member(f"m{index}", memory=100, volumes=mounts(f"c{index}")))
    assert await driver.settle() == []
