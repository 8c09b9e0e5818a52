"""Jobs whose pods get nodes together, with the real Job controller, and pods as other controllers create them.

The workloads are the examples of docs/gangs-declaring.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lab import wait
from tests.support.controllers import example, pods_of
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import coscheduling, gpubindings
from tests.system.support.gpubindings import NODE_A

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
CARDS = 8
"""Of each of the two nodes."""
UID = "batch.kubernetes.io/controller-uid"


@pytest.fixture(scope="module", autouse=True)
def nodes(tranche: Layout) -> Iterator[None]:
    """Two nodes of eight cards for these tests alone, and a scheduler that reads PodGroups."""
    with gpubindings.nodes(tranche), coscheduling.applied(tranche):
        yield


@pytest.fixture
def team(make_namespace: Callable[..., Namespace]) -> Iterator[Namespace]:
    """A namespace from which all Jobs and pods go before the next test begins."""
    made = make_namespace()
    yield made
    made.api.delete_all("jobs", namespace=made.name)
    made.empty()


def runnable(template: dict[str, Any]) -> None:
    """Let the pods of a template run on node A, with a card for each that asks for one."""
    plain = pod("any", node=NODE_A)["spec"]
    template["spec"] |= {key: value for key, value in plain.items() if key != "containers"}
    for each in template["spec"]["containers"]:
        each |= {key: plain["containers"][0][key] for key in ("image", "imagePullPolicy", "command")}


def job(name: str = "train", *, suspend: bool = False) -> dict[str, Any]:
    """Return the example's Job of four pods by another name."""
    (made,) = example("job")
    made["metadata"]["name"] = name
    made["spec"]["suspend"] = suspend
    runnable(made["spec"]["template"])
    return made


def fill(team: Namespace, free: int) -> None:
    """Take all cards of node A but some."""
    team.create(*(pod(f"fills-{index}", node=NODE_A, gpu=1) for index in range(CARDS - free)))
    team.placed(CARDS - free)


def of(name: str) -> str:
    """Return the selector of the pods of a Job."""
    return f"job-name={name}"


def waiting(team: Namespace, words: str, *, count: int = 4, labels: str) -> None:
    """Wait until this number of pods says why it waits; none has a node."""

    def all_wait(pods: Mapping[str, Any]) -> bool:
        explained = [
            each
            for each in pods.values()
            for condition in each["status"].get("conditions", ())
            if words in condition.get("message", "")
        ]
        return len(explained) == len(pods) == count

    team.until(all_wait, labels=labels, what=f"{count} pods that wait: {words}")
    assert not any(each["spec"].get("nodeName") for each in team.pods(labels))


def test_the_pods_of_an_indexed_job_are_bound_together(team: Namespace) -> None:
    """All four, by the labels that the Job controller writes."""
    team.create(job())
    placed = team.placed(4, labels=of("train"))
    owner = {each["metadata"]["ownerReferences"][0]["uid"] for each in placed}
    assert {each["metadata"]["labels"][UID] for each in placed} == owner
    indexes = {each["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] for each in placed}
    assert indexes == {"0", "1", "2", "3"}


def test_a_job_of_four_with_room_for_three_waits_as_a_whole(team: Namespace) -> None:
    """Each pod says so; one more card is enough for all."""
    fill(team, free=3)
    team.create(job())
    waiting(team, "3 of the 4 pods that gang", labels=of("train"))
    team.delete("pod", "fills-0", grace_s=1)
    team.placed(4, labels=of("train"))


def test_two_jobs_of_one_template_are_two_gangs(team: Namespace) -> None:
    """With room for one and a half, one runs, and the other follows when the first one is gone."""
    fill(team, free=6)
    team.create(job("first"), job("second"))

    def one_of_both(pods: Mapping[str, Any]) -> list[str] | None:
        bound = [each["metadata"]["labels"]["job-name"] for each in pods.values() if each["spec"].get("nodeName")]
        return bound if len(bound) == 4 else None

    runs = set(team.until(one_of_both, labels="job-name in (first,second)", what="four pods of one Job"))
    assert len(runs) == 1
    (waits,) = {"first", "second"} - runs
    waiting(team, "2 of the 4 pods that gang", labels=of(waits))
    team.api.delete("job", *runs, namespace=team.name)
    team.placed(4, labels=of(waits))


def test_a_suspended_job_holds_nothing_until_it_is_resumed(team: Namespace) -> None:
    """It has no pods; afterwards all four are bound."""
    team.create(job(suspend=True))
    suspended = ("Suspended", "True")
    team.until(
        lambda jobs: (
            suspended
            in ((each["type"], each["status"]) for each in jobs["train"].get("status", {}).get("conditions", ()))
        ),
        "jobs",
        what="the Job suspended",
    )
    assert not team.pods(of("train"))
    team.patch("job", "train", {"spec": {"suspend": False}})
    team.placed(4, labels=of("train"))


def test_a_pod_group_says_the_size_for_the_pods_of_a_job(team: Namespace) -> None:
    """The pods, created before it, wait for it; none of them is bound alone."""
    group, made = example("podgroup")
    runnable(made["spec"]["template"])
    team.create(made)
    waiting(team, "PodGroupNotFound", labels=of("train"))
    team.create(group)
    team.placed(4, labels=of("train"))


@pytest.mark.parametrize("name", ["jobset", "leaderworkerset", "pytorchjob", "mpijob"])
def test_the_pods_of_other_controllers_are_admitted_and_bound_together(team: Namespace, name: str) -> None:
    """As their controllers create them; the last one of each gang is missing at first."""
    (workload,) = example(name)
    made = [each for each in pods_of(workload, namespace=team.name) if _asks_for_a_card(each)]
    for each in made:
        runnable(each)
        # The garbage collector deletes a pod whose owner does not exist.
        del each["metadata"]["ownerReferences"]
    *first, last = made
    size = int(last["metadata"]["annotations"]["gpu.scheduling/gang-min-members"])
    team.create(*first)
    complete = len(made) - size
    if complete:
        team.placed(complete)
    wait.until(
        lambda: f"needs {size} pods, and fewer exist" in team.unplaced(first[-1]["metadata"]["name"]),
        what="a pod that waits for the last one",
        timeout_s=PATIENCE_S,
    )
    assert len([each for each in team.pods() if each["spec"].get("nodeName")]) == complete
    team.create(last)
    team.placed(len(made))


def _asks_for_a_card(made: dict[str, Any]) -> bool:
    return any("resources" in each for each in made["spec"]["containers"])
