"""A PodGroup of the coscheduling plugin says how many pods of its name get nodes together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from allocation.steps import finish
from cluster.pod_group import PodGroup
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.extender.wire import Args
from scheduler.gangs.gang import GangKey
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from scheduler.volumes.planned_pod import PlannedPod
from tests.scheduler.gang_scheduling.test_all_or_nothing import RecordingBinder, running
from tests.scheduler.support.builders import pod, state
from tests.scheduler.support.claims import claim, claiming
from tests.scheduler.support.extending import cache, extending
from tests.scheduler.support.gangs import of_gang
from tests.scheduler.support.scheduling import schedule
from tests.scheduler.support.volume_binding import until

LABEL = "scheduling.x-k8s.io/pod-group"
SIZE = "gpu.scheduling/gang-min-members"


def group(name: str = "train", *, namespace: str = "default", **spec: Any) -> PodGroup:
    """Return a PodGroup as the API server would send it."""
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
    status = {"phase": "Pending", "occupiedBy": "default/train"}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, PodGroup)


def member(name: str, *, annotations: Mapping[str, str] = {}) -> Pod:
    """Return a pod that names a PodGroup and asks for one card."""
    return pod(name, memory=1000, labels={LABEL: "train"}, annotations=dict(annotations))


def why(made: ClusterState, asks: Pod) -> str:
    """Return why a pod has no place."""
    result = finish(schedule(made, asks))
    assert isinstance(result, Unschedulable), result
    return result.note


async def test_the_size_of_a_gang_is_that_of_its_pod_group() -> None:
    """Two of three pods wait although there is room; with the third, all are bound."""
    made, binder = state("n1", cards=4, reads_pod_groups=True), RecordingBinder()
    made.pod_groups.set(group(minMember=3, minResources={"nvidia.com/gpu": "64"}))
    async with running(made, binder):
        for index in range(2):
            made.set_pod(member(f"m{index}"))
        await until(lambda: made.queue.depths()["backoff"] == 2)
        made.set_pod(member("m2"))
        await until(lambda: len(binder.bound) == 3)
    assert sorted(binder.rehearsed) == ["m0", "m1", "m2"]


async def test_pods_wait_for_their_pod_group_and_are_scheduled_when_it_is_created() -> None:
    """No other event would help them."""
    made, binder = state("n1", cards=4, reads_pod_groups=True), RecordingBinder()
    async with running(made, binder):
        for index in range(2):
            made.set_pod(member(f"m{index}"))
        await until(lambda: made.queue.depths()["unschedulable"] == 2)
        entry = made.queue.get("uid-m0")
        assert entry is not None
        assert entry.reasons == {"PodGroupNotFound"}
        made.pod_groups.set(group(minMember=2))
        await until(lambda: len(binder.bound) == 2)
    assert sorted(binder.rehearsed) == ["m0", "m1"]


async def test_pods_wait_again_if_their_pod_group_is_deleted_before_they_have_nodes() -> None:
    """What runs stays, and what waits would otherwise be scheduled one by one."""
    made = state("n1", cards=4, reads_pod_groups=True)
    made.pod_groups.set(group(minMember=2))
    made.set_pod(member("m0"))
    made.pod_groups.drop(group(minMember=2))
    assert why(made, member("m0")).startswith("PodGroupNotFound: PodGroup train does not exist: create it")


def test_a_pod_that_says_the_size_itself_needs_no_pod_group() -> None:
    """Nor does one of whose gang another pod says it."""
    made = state("n1", cards=4, reads_pod_groups=True)
    assert isinstance(finish(schedule(made, member("alone", annotations={SIZE: "1"}))), Scheduled)
    made.set_pod(member("m0", annotations={SIZE: "2"}))
    made.set_pod(member("m1"))
    assert made.requirements.of(member("m1")).is_gathering


def test_where_pod_groups_are_not_read_a_pod_does_not_wait_for_one() -> None:
    """The label only says which pods belong together."""
    assert isinstance(finish(schedule(state("n1"), member("m0"))), Scheduled)


def test_a_planned_pod_waits_for_its_pod_group_as_well() -> None:
    """`kubectl gpu simulate` says the same as the scheduler."""
    made = state("n1", reads_pod_groups=True)
    assert why(made, PlannedPod.of(member("m0"), ())).startswith("PodGroupNotFound")


def test_the_pod_group_of_another_namespace_is_another_one() -> None:
    """No namespace has a say in what pods of another one wait for."""
    made = state("n1", reads_pod_groups=True)
    made.pod_groups.set(group(namespace="other", minMember=3))
    made.set_pod(member("m0"))
    assert why(made, member("m0")).startswith("PodGroupNotFound")
    gang = made.gangs.of("uid-m0")
    assert gang is not None
    assert gang.size == 1


def test_a_pod_group_above_the_limit_holds_its_pods_and_names_the_number() -> None:
    """They would otherwise be placed although some are missing; a smaller number helps them at once."""
    made = state("n1", reads_pod_groups=True)
    made.pod_groups.set(group(minMember=2049))
    made.set_pod(member("m0"))
    expected = "PodGroup train demands 2049 pods: at most 2048 pods get nodes together; lower spec.minMember"
    assert expected in why(made, member("m0"))
    made.pod_groups.set(group(minMember=1))
    assert isinstance(finish(schedule(made, member("m0"))), Scheduled)


def test_the_gang_ref_of_a_claim_may_name_a_pod_group() -> None:
    """It has its size and its timeout; without a PodGroup it is a preference."""
    made = state("n1", reads_pod_groups=True)
    given = of_gang(claim("cards"), "train")
    asks = claiming("m0", given, labels={LABEL: "another"})
    made.set_claim(given)
    made.set_pod(asks)
    assert not made.requirements.of(asks).is_gathering
    made.pod_groups.set(group(minMember=3, scheduleTimeoutSeconds=90))
    gang = made.gangs.get(GangKey("default", "train"))
    assert gang is not None
    assert (gang.size, gang.timeout) == (3, 90.0)
    assert made.requirements.of(asks).is_gathering


@pytest.mark.parametrize("seconds", [None, 0, -5])
def test_a_pod_group_without_a_timeout_has_none(seconds: int | None) -> None:
    """Its pods wait for ever; a negative number means nothing else."""
    made = state("n1", reads_pod_groups=True)
    made.pod_groups.set(group(minMember=3, scheduleTimeoutSeconds=seconds))
    gang = made.gangs.get(GangKey("default", "train"))
    assert gang is not None
    assert (gang.size, gang.timeout) == (3, 0.0)


async def test_the_status_of_a_pod_group_wakes_no_pod() -> None:
    """The coscheduling plugin's controller writes it often."""
    made, binder = state("n1", cards=1, reads_pod_groups=True), RecordingBinder()
    made.pod_groups.set(group(minMember=2))
    async with running(made, binder):
        for index in range(2):
            made.set_pod(member(f"m{index}"))
        await until(lambda: made.queue.depths()["unschedulable"] == 2)
        made.pod_groups.set(group(minMember=2))
        assert made.queue.depths()["unschedulable"] == 2


async def test_behind_kube_scheduler_a_pod_waits_for_its_pod_group_as_well() -> None:
    """No node takes it, and the reason is that of loop mode; afterwards it waits for the others of its gang."""
    made = state("n1", "n2", has_queue=False, reads_pod_groups=True)
    extender, asks = extending(made), member("m0")
    cache(extender, asks)

    async def rejections() -> set[str]:
        result = await extender.filter(Args.of_pod(asks, ("n1", "n2")))
        return {*result.failed_nodes.values(), *result.failed_and_unresolvable_nodes.values()}

    (missing,) = await rejections()
    assert missing.startswith("PodGroupNotFound: PodGroup train does not exist")
    made.pod_groups.set(group(minMember=2))
    (incomplete,) = await rejections()
    assert "gang default/train" in incomplete
    made.pod_groups.set(group(minMember=1))
    assert await rejections() == set()
