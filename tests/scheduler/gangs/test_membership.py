"""Which pods are of one gang, and what they declare together."""

import msgspec
import pytest

from cluster.pod_group import KubernetesPodGroup, PodGroup
from scheduler.gangs.gang import Gang, GangKey, GroupSpec
from scheduler.gangs.gangs import Gangs
from scheduler.gangs.pod_groups import PodGroups
from tests.scheduler.gang_scheduling.test_all_or_nothing import member
from tests.scheduler.support.builders import allocated, pod, state
from tests.scheduler.support.claims import claim, claiming
from tests.scheduler.support.gangs import of_gang

KEY = GangKey("default", "train")


def gang_of(made: object, name: str, namespace: str = "default") -> Gang:
    """Return a gang, which must exist."""
    found = made.gangs.get(GangKey(namespace, name))  # type: ignore[attr-defined]
    assert found is not None
    return found


def test_equal_names_in_two_namespaces_are_two_gangs() -> None:
    """The pods of one do not count for the other."""
    made = state("n1")
    for namespace in ("default", "other"):
        for index in range(2):
            made.set_pod(
                pod(
                    f"{namespace}-{index}",
                    memory=10,
                    namespace=namespace,
                    labels={"gpu.scheduling/gang": "train"},
                    annotations={"gpu.scheduling/gang-min-members": "4"},
                )
            )
    for namespace in ("default", "other"):
        gang = gang_of(made, "train", namespace)
        assert len(gang.waiting) == 2
        assert not gang.is_complete


def test_the_largest_size_counts_and_the_difference_is_known() -> None:
    """While the pod that declares it exists."""
    made = state("n1")
    made.set_pod(member("m0", size=2))
    made.set_pod(member("m1", size=5))
    gang = gang_of(made, "train")
    assert gang.size == 5
    assert gang.disagreement == "its pods declare sizes from 2 to 5: the largest counts"
    made.drop_pod(member("m1", size=5))
    assert (gang.size, gang.disagreement) == (2, "")


def test_a_pod_that_declares_no_size_disagrees_with_none() -> None:
    """Nor does one without a block with one that has the same."""
    made = state("n1")
    made.set_pod(member("m0", size=2))
    made.set_pod(member("m1", size=0))
    assert gang_of(made, "train").disagreement == ""
    other = member("m2", size=2)
    other.metadata.annotations["gpu.scheduling/gang-block"] = "rack"
    made.set_pod(other)
    assert gang_of(made, "train").disagreement == "its pods declare different blocks: rack counts"


def test_a_pod_that_changes_its_gang_is_counted_in_the_new_one() -> None:
    """A label may be changed as long as the pod has no node, and afterwards, too."""
    made = state("n1")
    first = member("m0", "a")
    made.set_pod(first)
    made.set_pod(member("m0", "b"), first)
    assert made.gangs.get(GangKey("default", "a")) is None
    assert list(gang_of(made, "b").waiting) == ["uid-m0"]


def test_a_gated_pod_and_one_that_is_being_deleted_do_not_count() -> None:
    """They get no node."""
    made = state("n1")
    gated = member("m0", schedulingGates=[{"name": "example.com/wait"}])
    made.set_pod(gated)
    assert made.gangs.get(KEY) is None
    made.set_pod(member("m0"), gated)
    assert len(gang_of(made, "train").waiting) == 1
    made.set_pod(member("m0", deleted="2026-01-01T01:00:00Z"), member("m0"))
    assert made.gangs.get(KEY) is None


def test_pods_with_nodes_and_claims_that_come_later_count() -> None:
    """A pod is in the gang of its claim once the claim is there, and as long as it exists."""
    made = state("n1")
    given = of_gang(claim("c", exclusivity="Shared", memoryMiB=100), "train")
    waiting = claiming("m0", given)
    made.set_pod(waiting)
    assert made.gangs.of("uid-m0") is None
    made.set_claim(given)
    running = allocated("m1", node="n1", memory=10, labels={"gpu.scheduling/gang": "train"})
    made.set_pod(running)
    gang = gang_of(made, "train")
    assert (len(gang.waiting), gang.nodes, gang.placed) == (1, {"uid-m1": "n1"}, 1)
    made.drop_claim(given)
    assert not gang.waiting


@pytest.mark.parametrize(("declared", "group", "size"), [(2, 4, 4), (4, 2, 4), (0, 3, 3), (0, 10**6, 2048)])
def test_a_pod_group_counts_as_one_more_declaration(declared: int, group: int, size: int) -> None:
    """The pods that wait are woken when it changes."""
    made = state("n1")
    made.set_pod(member("m0", size=declared))
    assert made.gangs.set_group(KEY, "any", GroupSpec(group, 60.0)) == ["uid-m0"]
    gang = gang_of(made, "train")
    assert (gang.size, gang.timeout) == (size, 60.0)
    assert made.gangs.set_group(KEY, "any", None) == ["uid-m0"]
    assert (gang.size, gang.timeout) == (max(1, declared), 0.0)


def test_a_pod_group_may_come_before_its_pods() -> None:
    """And go after them."""
    made = state("n1")
    made.gangs.set_group(KEY, "any", GroupSpec(3))
    made.set_pod(member("m0", size=0))
    assert gang_of(made, "train").size == 3
    made.drop_pod(member("m0", size=0))
    made.gangs.set_group(KEY, "any", None)
    assert made.gangs.get(KEY) is None
    assert made.gangs.set_group(KEY, "any", None) == []


def test_pods_that_are_being_deleted_count_no_more() -> None:
    """Where a controller replaces all pods of a gang, the new ones wait for one another, not for the old ones."""
    made = state("n1", cards=4)
    labels, annotations = {"gpu.scheduling/gang": "train"}, {"gpu.scheduling/gang-min-members": "2"}
    for index in range(2):
        running = allocated(f"old-{index}", node="n1", memory=10, card=index, labels=labels)
        running.metadata.annotations.update(annotations)
        made.set_pod(running)
        leaving = allocated(
            f"old-{index}", node="n1", memory=10, card=index, labels=labels, deleted="2026-01-01T01:00:00Z"
        )
        leaving.metadata.annotations.update(annotations)
        made.set_pod(leaving, running)
    gang = gang_of(made, "train")
    assert (gang.placed, gang.state, len(gang.nodes)) == (0, "Incomplete", 2)
    made.set_pod(member("new-0", size=2))
    assert made.gangs.waits_for_others(member("new-0", size=2))
    assert not gang.is_complete
    made.set_pod(member("new-1", size=2))
    assert gang.is_complete
    made.drop_pod(leaving)
    assert gang.placed == 0


def test_a_pod_that_has_succeeded_counts_until_it_is_deleted() -> None:
    """Its gang needs no other in its place, and afterwards as many as before."""
    gangs = Gangs()
    done = member("m0", size=2, phase="Succeeded", node="n1")
    gangs.set_finished(done)
    gang = gangs.of("uid-m0")
    assert gang is not None
    assert (gang.placed, gang.state, gangs.pod("uid-m0")) == (1, "Finished", done)
    gangs.set_waiting(member("m1", size=2))
    assert gang.is_complete
    gangs.forget("uid-m0")
    assert (gang.placed, gang.is_complete, gangs.of("uid-m0"), gangs.pod("uid-m0")) == (0, False, None, None)
    gangs.set_finished(member("m2", size=2, phase="Failed", node="n1"))
    assert gangs.of("uid-m2") is None


def test_a_pod_waits_for_others_while_they_are_being_bound() -> None:
    """Also if as many as necessary have nodes: what is reserved for these may have to be released."""
    gangs, late = Gangs(), member("late", size=2)
    for index in range(2):
        gangs.add(member(f"m{index}", size=2), "n1")
    gangs.set_waiting(late)
    assert not gangs.waits_for_others(late)
    assert not gangs.waits_for_others(pod("single", memory=1))
    gang = gangs.of(late.uid)
    assert gang is not None
    gang.is_committing = True
    assert gangs.waits_for_others(late)
    assert gang.unready == "others of gang default/train are being bound"


def test_a_status_of_a_pod_group_wakes_no_pod() -> None:
    """It changes often, and says nothing about the size; a deleted PodGroup wakes those that waited for it."""
    gangs, woken = Gangs(), list[list[str]]()
    groups = PodGroups(gangs, reads=True, has_queue=True, on_change=lambda uids: woken.append(list(uids)))
    gangs.set_waiting(member("m0", size=0))
    spec = {"minMember": 3, "scheduleTimeoutSeconds": 60}
    for phase in ("Pending", "Scheduling"):
        metadata = {"name": "train", "namespace": "default", "uid": "uid"}
        groups.set(msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": phase}}, PodGroup))
    assert woken == [["uid-m0"]]
    assert groups.get(KEY) == GroupSpec(3, 60.0)
    groups.drop(msgspec.convert({"metadata": metadata, "spec": spec}, PodGroup))
    assert woken == [["uid-m0"]] * 2
    assert groups.get(KEY) is None


def test_two_pod_groups_of_one_name_say_the_largest_of_each() -> None:
    """One of the plugin and one of Kubernetes may exist."""
    gangs = Gangs()
    gangs.set_group(KEY, "one", GroupSpec(2, 60.0))
    gangs.set_group(KEY, "two", GroupSpec(3, block="rack", parent="all"))
    gang = gangs.get(KEY)
    assert gang is not None
    assert (gang.group, gang.block) == (GroupSpec(3, 60.0, "rack", "all"), "rack")


def test_a_pod_is_in_the_gang_of_its_last_known_state() -> None:
    """Whatever an older state of it says, and also when it has finished under another label."""
    gangs = Gangs()
    before = member("m0", "a", size=2)
    gangs.set_waiting(before)
    gangs.add(member("m0", "b", size=2), "n1")
    assert gangs.nodes_of(before) == {"n1": 1}
    assert gangs.waits_for_others(before)
    assert [gang.key.name for gang in gangs] == ["b"]
    gangs.remove("uid-m0")
    gangs.set_finished(member("m0", "c", size=2, phase="Succeeded", node="n1"))
    assert [(gang.key.name, gang.placed) for gang in gangs] == [("c", 1)]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"schedulingPolicy": {"gang": {"minCount": 3}}}, GroupSpec(3)),
        ({"schedulingPolicy": {"basic": {}}}, GroupSpec(1)),
        (
            {"schedulingConstraints": {"topology": [{"key": "rack"}]}, "parentCompositePodGroupName": "all"},
            GroupSpec(1, block="rack", parent="all"),
        ),
    ],
)
def test_a_pod_group_of_kubernetes_says_size_block_and_parent(spec: dict[str, object], expected: GroupSpec) -> None:
    """It has no timeout."""
    gangs = Gangs()
    groups = PodGroups(gangs, reads=True, has_queue=True, on_change=lambda _: None)
    metadata = {"name": "train", "namespace": "default", "uid": "uid"}
    groups.set(msgspec.convert({"metadata": metadata, "spec": spec}, KubernetesPodGroup))
    assert groups.get(KEY) == expected
