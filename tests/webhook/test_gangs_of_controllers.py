"""Each instance of a controller is a gang of its own, by the labels that its controller gives to pods.

The workloads are the examples of docs/gangs-declaring.md, their pods those of the controllers, as admission completes
them and the scheduler reads them.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cluster.pod_group import PodGroup
from scheduler.objects import Pod
from tests.scheduler.gang_scheduling.test_all_or_nothing import RecordingBinder, running
from tests.scheduler.support.builders import state
from tests.scheduler.support.volume_binding import until
from tests.support.controllers import EXAMPLES, example, pods_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scheduler.state.cluster_state import ClusterState
    from tests.webhook.conftest import Verdict

    Admit = Callable[..., Verdict]

GANGS = {
    "job": [4],
    "jobset": [5],
    "leaderworkerset": [3, 3],
    "pytorchjob": [4],
    "mpijob": [4],
    "podgroup": [4],
}
"""By example, the sizes of its gangs."""
PAGE = EXAMPLES.parents[1] / "gangs-declaring.md"
BY = "gpu.scheduling/gang-by"
SCHEDULER = "tranche"


def workload(name: str) -> dict[str, Any]:
    """Return the workload of an example, its last object."""
    return example(name)[-1]


def admitted(admit: Admit, made: dict[str, Any]) -> dict[str, Any]:
    """Return a pod after admission, which neither refuses it nor warns of it."""
    made["spec"].setdefault("schedulerName", "default-scheduler")
    verdict = admit(made)
    assert verdict.allowed, verdict.message
    assert verdict.warnings == []
    return verdict.pod


def shown(admit: Admit, *workloads: tuple[dict[str, Any], int]) -> Iterator[Pod]:
    """Yield the pods of workloads that are for Tranche, as the scheduler sees them; each with its instance."""
    for made, instance in workloads:
        for each in pods_of(made, namespace="team", instance=instance):
            pod = admitted(admit, each)
            if pod["spec"]["schedulerName"] == SCHEDULER:
                name = pod["metadata"]["name"]
                pod["metadata"] |= {"namespace": "team", "uid": f"uid-{name}-{instance}"}
                yield msgspec.convert(pod, Pod)


def read_by(made: ClusterState, name: str) -> None:
    """Let the scheduler see what an example has apart from its workload."""
    for each in example(name)[:-1]:
        each["metadata"] |= {"namespace": "team"}
        made.pod_groups.set(msgspec.convert(each, PodGroup))


def sizes(made: ClusterState) -> list[int]:
    """Return the sizes of the gangs that have as many pods as necessary, of all gangs."""
    assert all(len(gang.waiting) == gang.size for gang in made.gangs)
    return sorted(gang.size for gang in made.gangs)


def test_every_example_is_tested() -> None:
    """No file is shown on the page that was not tried."""
    assert {each.stem for each in EXAMPLES.glob("*.yaml")} == set(GANGS)


@pytest.mark.parametrize("name", GANGS)
def test_the_pods_of_each_controller_are_gangs_that_are_complete(admit: Admit, name: str) -> None:
    """All pods with a card are in one, and no gang waits for a pod that never comes."""
    made = state("n1", reads_pod_groups=True)
    read_by(made, name)
    pods = list(shown(admit, (workload(name), 1)))
    for pod in pods:
        made.set_pod(pod)
        assert made.gangs.of(pod.uid) is not None
    assert sizes(made) == GANGS[name]
    assert len(pods) == sum(GANGS[name])


@pytest.mark.parametrize("name", GANGS)
async def test_the_pods_of_each_controller_are_bound_together(admit: Admit, name: str) -> None:
    """With room for all but one, each gang that has no room waits as a whole; with room for all, all are bound."""
    pods = list(shown(admit, (workload(name), 1)))
    for cards, bound in ((len(pods) - 1, len(pods) - GANGS[name][-1]), (len(pods), len(pods))):
        made, binder = state("n1", cards=cards, reads_pod_groups=True), RecordingBinder()
        read_by(made, name)
        async with running(made, binder):
            for pod in pods:
                made.set_pod(pod)
            depths = made.queue.depths
            await until(lambda: len(binder.bound) + depths()["unschedulable"] == len(pods))  # noqa: B023 -- at once
        assert len(binder.bound) == bound


@pytest.mark.parametrize("name", ["job", "jobset"])
def test_two_objects_of_one_template_are_two_gangs(admit: Admit, name: str) -> None:
    """Their labels have the UID of the object; also of one that was deleted and created again by the same name."""
    made, gangs = state("n1"), defaultdict[str, set[int]](set)
    for instance in (1, 2):
        for pod in shown(admit, (workload(name), instance)):
            made.set_pod(pod)
            gang = made.gangs.of(pod.uid)
            assert gang is not None
            gangs[str(gang.key)].add(instance)
    assert sorted(map(len, gangs.values())) == [1, 1]
    assert sizes(made) == GANGS[name] * 2


def test_each_group_of_a_leader_worker_set_is_a_gang(admit: Admit) -> None:
    """The leader and its own workers, whose StatefulSet is another one than the leader's."""
    made = state("n1")
    for pod in shown(admit, (workload("leaderworkerset"), 1)):
        made.set_pod(pod)
    members = [sorted(each.metadata.name for each in gang.waiting.values()) for gang in made.gangs]
    assert sorted(members) == [["serve-0", "serve-0-1", "serve-0-2"], ["serve-1", "serve-1-1", "serve-1-2"]]


def test_a_launcher_without_a_card_is_not_waited_for(admit: Admit) -> None:
    """It is not for Tranche, so it must not be counted in the size; it is admitted as it is."""
    (launcher,) = (each for each in pods_of(workload("mpijob")) if each["metadata"]["name"] == "train-launcher")
    assert admitted(admit, launcher)["spec"]["schedulerName"] == "default-scheduler"


def test_a_suspended_job_is_no_gang_until_it_is_resumed() -> None:
    """It has no pods."""
    suspended = workload("job")
    suspended["spec"]["suspend"] = True
    assert pods_of(suspended) == []


def test_a_pod_that_its_controller_has_not_labelled_is_refused(admit: Admit) -> None:
    """Its gang would have one pod. The message names the annotation and the label."""
    (pod, *_) = pods_of(workload("job"))
    del pod["metadata"]["labels"]["batch.kubernetes.io/controller-uid"]
    verdict = admit(pod)
    assert not verdict.allowed
    assert BY in verdict.message
    assert "batch.kubernetes.io/controller-uid" in verdict.message


def test_a_template_may_name_a_label_that_only_its_pods_have(admit: Admit) -> None:
    """Where templates are completed, a Job is reviewed before its controller labels anything."""
    verdict = admit(workload("job"), kind="Job", group="batch")
    assert verdict.allowed, verdict.message
    assert verdict.operations


@pytest.mark.parametrize("name", GANGS)
def test_the_page_shows_the_file(name: str) -> None:
    """What a reader copies is what was tried."""
    assert f"```yaml\n{(EXAMPLES / name).with_suffix('.yaml').read_text()}```\n" in PAGE.read_text(encoding="utf-8")
