"""The explanation of a pod has its queue and its rank, and what to do if the queue takes no pod."""

from typing import Any

import pytest

from allocation.names import QUEUE
from allocation.steps import finish
from scheduler.api import simulation
from scheduler.api.explanation_types import Explanation
from scheduler.api.manifest_pod import SubmittedPod
from scheduler.api.namespaced import redaction
from scheduler.api.queue_types import PodQueue, QueueAhead
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from scheduler.volumes.planned_pod import PlannedPod
from tests.scheduler.api.test_explanation import everything
from tests.scheduler.support.builders import namespace, pod, state
from tests.scheduler.support.driving import Driver, gpu_queue
from tests.scheduler.support.explaining import explained
from tests.scheduler.support.preempting import evictions_of
from tests.scheduler.support.queued import charged
from tests.scheduler.support.quotas import gpu_quota
from tests.scheduler.support.scheduling import cycle_of


def waiting(name: str, *, queue: str, memory: int = 600, **more: Any) -> Pod:
    """Return a pod that names a queue."""
    return pod(name, memory=memory, labels={QUEUE: queue} if queue else {}, **more)


def site(*pods: Pod) -> ClusterState:
    """Return two cards of 1000 MiB, three queues, and these pods."""
    made = state("n1")
    for queue in (
        gpu_queue("team-a", weight=3),
        gpu_queue("team-b"),
        gpu_queue("strict", queueingStrategy="StrictFIFO"),
    ):
        made.limits.set_queue(queue)
    for each in pods:
        made.set_pod(each)
    return made


def of(made: ClusterState, asked: Pod) -> PodQueue:
    """Return the queue of a pod, as its explanation has it."""
    shown = explained(made, asked).gpu_queue
    assert shown is not None
    return shown


def test_a_waiting_pod_has_its_rank_and_the_queue_before_it() -> None:
    """Team b has the smaller share; the older pod of the own queue is closer, but of the same queue."""
    last = waiting("last", queue="team-a", created="2026-01-03T00:00:00Z")
    made = site(
        charged("a", memory=900, queue="team-a"),
        charged("b", memory=240, queue="team-b", card=1),
        waiting("older", queue="team-a"),
        waiting("theirs", queue="team-b"),
        last,
    )
    assert of(made, last) == PodQueue(
        name="team-a",
        weight=3,
        priority=0,
        share=0.45,
        dominant_resource="nvidia.com/gpumem",
        entitlement=0.75,
        rank=3,
        waiting=3,
        ahead=QueueAhead("team-b", "share", 1, 0, 0.125, "nvidia.com/gpu"),
    )


@pytest.mark.parametrize("by", ["tier", "priority", "age"])
def test_the_explanation_says_why_another_queue_is_before(by: str) -> None:
    """A smaller share is one reason of four; the shares are equal here."""
    asked = waiting("asked", queue="team-b", created="2026-01-02T00:00:00Z")
    made = site(waiting("theirs", queue="team-a", priority=9 if by == "priority" else 0), asked)
    made.limits.set_queue(gpu_queue("team-a", priority=1 if by == "tier" else 0))
    ahead = of(made, asked).ahead
    assert ahead is not None
    assert (ahead.name, ahead.by) == ("team-a", by)


def test_without_gpu_queues_an_explanation_has_none() -> None:
    """The output is that of a cluster which knows no queues."""
    asked = pod("a", memory=10)
    made = state("n1")
    made.set_pod(asked)
    assert explained(made, asked).gpu_queue is None


def test_a_pod_with_a_node_shows_who_pays_and_no_rank() -> None:
    """The annotation decides, whatever its labels say by now."""
    runs = charged("a", memory=500, queue="team-b")
    runs.metadata.labels = {**runs.metadata.labels, QUEUE: "team-a"}
    shown = of(site(runs), runs)
    assert (shown.name, shown.share, shown.rank, shown.ahead) == ("team-b", 0.25, 0, None)


def test_a_pod_without_a_queue_belongs_to_that_of_its_namespace() -> None:
    """The namespace's label names one, or the namespace is a queue of its own."""
    made, asked = site(), waiting("a", queue="")
    assert of(made, asked).name == "namespace/default"
    made.limits.set_namespace(namespace("default", **{QUEUE: "team-b"}))
    assert of(made, asked).name == "team-b"


async def test_a_pod_of_a_lower_tier_waits_for_a_queue_that_wants_more() -> None:
    """Whatever fits: the pod of the higher tier waits for a card, and the other one for it."""
    driver = Driver(site(charged("x", memory=900, queue="team-a"), charged("y", memory=900, queue="team-a", card=1)))
    driver.state.limits.set_queue(gpu_queue("urgent", priority=7))
    driver.add(waiting("first", queue="urgent", memory=800))
    await driver.settle()
    small = waiting("small", queue="team-b", memory=50)
    driver.add(small)
    shown = explained(driver.state, small)
    assert shown.outcome == "fits"
    assert shown.gpu_queue is not None
    assert shown.gpu_queue.waits_for == "urgent"
    assert await driver.settle() == []
    assert of(driver.state, charged("x", memory=900, queue="team-a")).waits_for == ""  # it runs
    driver.state.limits.drop_queue(gpu_queue("urgent"))
    assert of(driver.state, small).waits_for == ""


def test_a_younger_pod_of_a_strict_queue_is_behind_the_first() -> None:
    """In other queues it is tried when the first does not fit."""
    pods = [
        waiting(f"{queue}-{age}", queue=queue, created=f"2026-01-0{age}T00:00:00Z")
        for queue in ("strict", "team-b")
        for age in (1, 2)
    ]
    made = site(*pods)
    assert [of(made, each).is_behind_first for each in pods] == [False, True, False, False]


def outcome(shown: Explanation) -> tuple[str, str]:
    """Return the outcome and the reason code."""
    return shown.outcome, shown.note.partition(":")[0]


@pytest.mark.parametrize(
    ("label", "code", "hint"),
    [
        (
            "ghost",
            "QueueUnknown",
            "label gpu.scheduling/queue of the pod names the queue; GpuQueues for namespace default: full, halted",
        ),
        (
            "closed",
            "QueueForbidden",
            "label gpu.scheduling/queue of the pod names the queue; GpuQueues for namespace default: full, halted",
        ),
        (
            "halted",
            "QueueSuspended",
            "an administrator resumes the queue by: kubectl patch gpuqueue halted --type=merge",
        ),
        (
            "full",
            "PodQuotaNotFit",
            "the pod is scheduled when another pod of GpuQueue full ends, or an administrator raises maxInstances",
        ),
    ],
)
def test_a_pod_whose_queue_does_not_take_it_sees_the_remedy(label: str, code: str, hint: str) -> None:
    """No node is evaluated; a simulation names the queues as the cause."""
    made = state("n1")
    made.limits.set_queue(gpu_queue("closed", namespaceSelector={"matchLabels": {"team": "x"}}))
    made.limits.set_queue(gpu_queue("halted", suspended=True))
    made.limits.set_queue(gpu_queue("full", maxInstances=1))
    made.set_pod(charged("runs", memory=10, queue="full"))
    asked = waiting("a", queue=label)
    shown = explained(made, asked)
    assert outcome(shown) == ("waits", code)
    (remedy,) = shown.hints
    assert remedy.startswith(hint)
    simulated = finish(
        simulation.simulate(
            cycle_of(made), SubmittedPod(PlannedPod.of(asked, {}, {}), ()), evictions=evictions_of(made)
        )
    )
    assert simulated.error is not None
    assert simulated.error.diagnosis.unschedulable_plugins == ("GpuQueues",)  # type: ignore[union-attr]  # of a FitError


def test_the_remedy_names_the_object_whose_pods_are_counted() -> None:
    """It is the GpuQuota of the namespace where the queue has instances left."""
    made = state("n1")
    made.limits.set_queue(gpu_queue("roomy", maxInstances=9))
    made.limits.set_gpu_quota(gpu_quota(total={"maxPods": 1}))
    made.set_pod(charged("runs", memory=10, queue="roomy"))
    shown = explained(made, waiting("a", queue="roomy"))
    assert outcome(shown) == ("waits", "PodQuotaNotFit")
    (hint,) = shown.hints
    assert hint == (
        "the pod is scheduled when another pod of namespace default ends, or an administrator raises"
        " spec.total.maxPods of the GpuQuota"
    )


def test_the_remedy_names_the_namespace_whose_label_is_wrong() -> None:
    """The pod has no label; no queue is for the namespace."""
    made = state("n1")
    made.limits.set_queue(gpu_queue("closed", namespaceSelector=None))
    made.limits.set_namespace(namespace("default", **{QUEUE: "ghost"}))
    (remedy,) = explained(made, pod("a", memory=10)).hints
    assert remedy == (
        "label gpu.scheduling/queue of namespace default names the queue; no GpuQueue is for namespace default:"
        " without the label the namespace is a queue of its own"
    )


def test_pods_whose_queue_takes_none_have_no_rank() -> None:
    """Nor do others come after them, although they are older."""
    last = waiting("last", queue="team-a")
    pods = [waiting(name, queue=name) for name in ("ghost", "halted", "full")]
    made = site(*pods, last)
    made.limits.set_queue(gpu_queue("halted", suspended=True))
    made.limits.set_queue(gpu_queue("full", maxInstances=0))
    shown = of(made, last)
    assert (shown.rank, shown.waiting, shown.ahead) == (1, 1, None)
    assert [of(made, each).rank for each in pods] == [0, 0, 0]


async def test_pods_that_have_to_change_have_no_rank() -> None:
    """No card is offered to them."""
    driver, held = Driver(site()), waiting("held", queue="team-a", memory=10, resourceClaims=[{}])
    driver.add(held)
    await driver.settle()
    asked = waiting("asked", queue="team-a")
    driver.add(asked)
    assert (of(driver.state, held).rank, of(driver.state, asked).rank) == (0, 1)


def test_a_limit_of_the_queue_is_named() -> None:
    """With what its pods hold and what the pod requests."""
    made = site(charged("a", memory=500, queue="team-b"))
    made.limits.set_queue(gpu_queue("team-b", limits={"nvidia.com/gpumem": 800}))
    shown = explained(made, waiting("b", queue="team-b"))
    assert "ResourceQuotaNotFit" in shown.note
    assert shown.quota == "GpuQueue team-b limits nvidia.com/gpumem to 800: 500 used, 600 requested"


def test_users_of_one_namespace_do_not_see_the_shares_of_others() -> None:
    """Their own queue and their rank are theirs to see."""
    mine = waiting("mine", queue="team-a")
    made = site(charged("a", memory=900, queue="team-a"), waiting("theirs", queue="team-b"), mine)
    whole = explained(made, mine)
    public = redaction.of_explanation(whole)
    assert whole.gpu_queue is not None
    assert public.gpu_queue is not None
    assert whole.gpu_queue.ahead is not None
    assert public.gpu_queue.ahead is None
    assert (public.gpu_queue.rank, public.gpu_queue.share) == (2, 0.45)


def test_explaining_queues_changes_no_state() -> None:
    """A dry run reads the shares."""
    asked = waiting("a", queue="team-a")
    made = site(charged("b", memory=500, queue="team-b"), asked)
    before = everything(made)
    explained(made, asked)
    explained(made, waiting("planned", queue="team-b"))
    assert everything(made) == before
