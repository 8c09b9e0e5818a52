"""A PodGroup of Kubernetes, which pods name by `spec.schedulingGroup`, says how many of them get nodes together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from allocation.steps import finish
from cluster.pod_group import KubernetesPodGroup, PodGroup
from scheduler.cycle.result import Scheduled, Unschedulable
from tests.scheduler.gang_scheduling.test_all_or_nothing import RecordingBinder, running
from tests.scheduler.support.builders import node, pod, state, status
from tests.scheduler.support.scheduling import schedule
from tests.scheduler.support.volume_binding import until

if TYPE_CHECKING:
    from scheduler.objects import Pod
    from scheduler.state.cluster_state import ClusterState


def group(name: str = "train", *, minimum: int | None = None, **spec: Any) -> KubernetesPodGroup:
    """Return a PodGroup as the API server would send it: of a gang, or of pods that are scheduled by themselves."""
    policy = {"gang": {"minCount": minimum}} if minimum is not None else {"basic": {}}
    body = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"schedulingPolicy": policy, "disruptionMode": {"single": {}}, "priority": 0, **spec},
    }
    return msgspec.convert(body, KubernetesPodGroup)


def member(name: str, **labels: str) -> Pod:
    """Return a pod that names the group and asks for a card."""
    return pod(name, memory=1000, labels=labels, schedulingGroup={"podGroupName": "train"})


def why(made: ClusterState, asks: Pod) -> str:
    """Return why a pod has no place."""
    result = finish(schedule(made, asks))
    assert isinstance(result, Unschedulable), result
    return result.note


async def test_pods_get_nodes_together_once_their_group_exists() -> None:
    """The controller may create the pods first; two of three wait, with the third all are bound."""
    made, binder = state("n1", cards=4, reads_pod_groups=True), RecordingBinder()
    async with running(made, binder):
        for index in range(2):
            made.set_pod(member(f"m{index}"))
        await until(lambda: made.queue.depths()["unschedulable"] == 2)
        entry = made.queue.get("uid-m0")
        assert entry is not None
        assert entry.reasons == {"PodGroupNotFound"}
        made.pod_groups.set(group(minimum=3))
        await until(lambda: made.queue.depths()["backoff"] == 2)
        made.set_pod(member("m2"))
        await until(lambda: len(binder.bound) == 3)
    assert sorted(binder.rehearsed) == ["m0", "m1", "m2"]


def test_pods_of_a_basic_group_get_nodes_one_by_one() -> None:
    """They are only placed near each other."""
    made = state("n1", reads_pod_groups=True)
    made.pod_groups.set(group())
    made.set_pod(member("m0"))
    assert isinstance(finish(schedule(made, member("m0"))), Scheduled)


async def test_all_nodes_of_a_group_are_in_the_block_that_it_names() -> None:
    """Rack a has room for one pod more than for the first."""
    made, binder = state(reads_pod_groups=True), RecordingBinder()
    for name, rack, cards in (("a1", "a", 2), ("a2", "a", 1), ("b1", "b", 2), ("b2", "b", 2)):
        made.set_node(node(name, metadata={"name": name, "labels": {"rack": rack}}))
        made.agent_reports.set(status(name, cards=cards))
    made.pod_groups.set(group(minimum=4, schedulingConstraints={"topology": [{"key": "rack"}]}))
    async with running(made, binder):
        for index in range(4):
            made.set_pod(member(f"m{index}"))
        await until(lambda: len(binder.bound) == 4)
    assert {each[0] for each in binder.bound.values()} == {"b"}


def test_a_group_of_groups_holds_its_pods() -> None:
    """What the other groups need is not known here."""
    made = state("n1", reads_pod_groups=True)
    made.pod_groups.set(group(parentCompositePodGroupName="all"))
    made.set_pod(member("m0"))
    assert "PodGroup train belongs to CompositePodGroup all" in why(made, member("m0"))


def test_the_group_comes_before_labels() -> None:
    """The field cannot be changed, and nothing but a group is named by it."""
    made = state("n1", reads_pod_groups=True)
    made.pod_groups.set(group(minimum=3))
    made.set_pod(member("m0", **{"gpu.scheduling/gang": "other"}))
    (gang,) = [each for each in made.gangs if each.waiting]
    assert (gang.key.name, gang.size) == ("train", 3)


@pytest.mark.parametrize("order", [1, -1])
def test_groups_of_both_kinds_with_one_name_count_together(order: int) -> None:
    """Each counts as long as it exists."""
    made = state("n1", reads_pod_groups=True)
    plugins = msgspec.convert(
        {"metadata": {"name": "train", "namespace": "default"}, "spec": {"minMember": 5, "scheduleTimeoutSeconds": 9}},
        PodGroup,
    )
    own = group(minimum=3, schedulingConstraints={"topology": [{"key": "rack"}]})
    for each in (plugins, own)[::order]:
        made.pod_groups.set(each)
    made.set_pod(member("m0"))
    gang = made.gangs.of("uid-m0")
    assert gang is not None
    assert (gang.size, gang.timeout, gang.block) == (5, 9.0, "rack")
    made.pod_groups.drop(plugins)
    assert (gang.size, gang.timeout, gang.block) == (3, 0.0, "rack")
    made.pod_groups.drop(own)
    assert "PodGroupNotFound" in why(made, member("m0"))


def test_without_the_setting_or_in_extender_mode_the_field_names_no_gang() -> None:
    """Such pods are held in loop mode; kube-scheduler evaluates the field itself."""
    for made in (state("n1"), state("n1", reads_pod_groups=True, has_queue=False)):
        made.pod_groups.set(group(minimum=3))
        made.set_pod(member("m0"))
        assert made.gangs.of("uid-m0") is None
    assert "let PodGroups be read (gangs.pod_groups)" in why(state("n1"), member("m0"))


def test_a_group_of_another_kind_holds_the_pod() -> None:
    """A later Kubernetes may have more fields than the name of a PodGroup."""
    made = state("n1", reads_pod_groups=True)
    asks = pod("m0", memory=1000, schedulingGroup={"somethingElse": "train"})
    made.set_pod(asks)
    assert "spec.schedulingGroup is not evaluated" in why(made, asks)
