"""What GpuQueues refuse and limit, and who pays for a pod: the same after a restart as before."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation import names
from allocation.fairness.queue_spec import QueueKey
from allocation.fairness.shares import NOTHING
from allocation.steps import finish
from cluster.resource_quota import ResourceQuota
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import allocated, namespace, node, pod, state, status
from tests.scheduler.support.driving import gpu_queue
from tests.scheduler.support.scheduling import schedule

A = QueueKey("a")


def of_queue(queue: str, name: str = "p", **more: Any) -> Pod:
    """Return a waiting pod that names a queue."""
    return pod(name, labels={names.QUEUE: queue}, **{"memory": 500, **more})


def rejection(made: ClusterState, waiting: Pod) -> Unschedulable:
    """Schedule a pod; return why no node takes it."""
    made.set_pod(waiting)
    result = finish(schedule(made, waiting))
    assert isinstance(result, Unschedulable)
    return result


def is_placed(made: ClusterState, waiting: Pod) -> bool:
    """Schedule a pod; return whether a node takes it."""
    made.set_pod(waiting)
    return isinstance(finish(schedule(made, waiting)), Scheduled)


def charged(name: str, queue: str, **more: Any) -> Pod:
    """Return a pod that runs, and for which `queue` pays."""
    running = allocated(name, **{"node": "n0", "memory": 250, **more})
    annotations = {**running.metadata.annotations, names.CHARGED_TO: queue}
    return Pod(msgspec.structs.replace(running.metadata, annotations=annotations), running.spec, running.status)


# ---- who may ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queue", "reason", "words"),
    [
        ("missing", "QueueUnknown", "GpuQueue missing does not exist"),
        ("foreign", "QueueForbidden", "GpuQueue foreign is not for namespace default"),
        ("asleep", "QueueSuspended", "GpuQueue asleep is suspended"),
        ("full", "PodQuotaNotFit", "GpuQueue full has 1 pods with a node"),
    ],
)
def test_a_pod_waits_as_long_as_its_queue_does_not_take_it(queue: str, reason: str, words: str) -> None:
    """Each of four reasons has a code, and words that say what to change; the pod is placed once it is mended."""
    made = state("n0")
    made.limits.set_queue(gpu_queue("foreign", namespaceSelector={"matchLabels": {"team": "x"}}))
    made.limits.set_queue(gpu_queue("asleep", suspended=True))
    made.limits.set_queue(gpu_queue("full", maxInstances=1))
    made.set_pod(charged("r", "full"))
    waiting = of_queue(queue)
    result = rejection(made, waiting)
    assert result.reasons == {reason}
    assert words in result.note
    assert result.demand is None
    made.limits.set_queue(gpu_queue(queue))
    assert is_placed(made, waiting)


def test_suspension_leaves_pods_with_a_node_alone() -> None:
    """They keep their cards, and the queue still pays for them."""
    made = state("n0")
    made.limits.set_queue(gpu_queue("a"))
    made.set_pod(charged("r", "a"))
    made.limits.set_queue(gpu_queue("a", suspended=True))
    assert made.fair_share.use.of(A).pods == 1
    assert made.ledger.reservation("uid-r") is not None


def test_the_last_instance_makes_room_for_the_next() -> None:
    """As many pods as maxInstances says, counted when they are assumed."""
    made = state("n0")
    made.limits.set_queue(gpu_queue("a", maxInstances=2))
    first, second, third = (of_queue("a", name, memory=250) for name in ("p1", "p2", "p3"))
    assert is_placed(made, first)
    assert is_placed(made, second)
    assert rejection(made, third).reasons == {"PodQuotaNotFit"}
    made.drop_pod(first)
    assert is_placed(made, third)


# ---- limits ----------------------------------------------------------------------------------------------------------


def quota(memory: int) -> ResourceQuota:
    """Return a quota of namespace `default`."""
    body = {
        "metadata": {"name": "quota", "namespace": "default"},
        "spec": {"hard": {"limits.nvidia.com/gpumem": str(memory)}},
    }
    return msgspec.convert(body, ResourceQuota)


@pytest.mark.parametrize(
    ("of_quota", "of_gpu_queue", "name"), [(400, 800, "ResourceQuota quota"), (800, 400, "GpuQueue a limits")]
)
def test_of_a_quota_and_a_queue_the_smaller_limit_counts_and_is_named(
    of_quota: int, of_gpu_queue: int, name: str
) -> None:
    """400 MiB are allowed, 500 are not, whoever sets it."""
    made = state("n0")
    made.limits.set_quota(quota(of_quota))
    made.limits.set_queue(gpu_queue("a", limits={"nvidia.com/gpumem": of_gpu_queue}))
    result = rejection(made, of_queue("a", "large", memory=500))
    assert result.reasons == {"ResourceQuotaNotFit"}
    assert name in result.note
    assert result.demand is None
    assert is_placed(made, of_queue("a", "small", memory=400))


def test_the_limit_of_a_queue_holds_over_all_its_namespaces() -> None:
    """What a pod of another namespace holds counts, that of another queue does not."""
    made = state("n0")
    made.limits.set_queue(gpu_queue("a", limits={"nvidia.com/gpumem": 900}))
    made.limits.set_queue(gpu_queue("b"))
    made.set_pod(charged("r1", "a", memory=500, namespace="other"))
    made.set_pod(charged("r2", "b", memory=250))
    assert rejection(made, of_queue("a", "large", memory=500)).reasons == {"ResourceQuotaNotFit"}
    assert is_placed(made, of_queue("a", "small", memory=400))


# ---- who pays --------------------------------------------------------------------------------------------------------


def test_the_queue_that_was_written_pays_whatever_labels_say_later() -> None:
    """A pod that changes its label while it runs does not move its cost to others."""
    made = state("n0")
    made.limits.set_queue(gpu_queue("a"))
    made.limits.set_queue(gpu_queue("b"))
    before = charged("r", "a", labels={names.QUEUE: "a"})
    made.set_pod(before)
    flipped = charged("r", "a", labels={names.QUEUE: "b"})
    made.set_pod(flipped, before)
    made.limits.set_namespace(namespace("default", **{names.QUEUE: "b"}))
    assert made.fair_share.use.owner("uid-r") == A


def test_pods_without_a_written_queue_follow_the_label_of_their_namespace() -> None:
    """Those that wait and those that run, as long as they name no queue themselves."""
    made = state("n0")
    made.limits.set_queue(gpu_queue("a"))
    made.set_pod(allocated("plain", node="n0", memory=250))
    made.set_pod(allocated("named", node="n0", memory=250, labels={names.QUEUE: "b"}))
    made.set_pod(pod("waiting", memory=500))
    assert made.fair_share.use.owner("uid-plain") == QueueKey(namespace="default")
    labelled, plain = namespace("default", **{names.QUEUE: "a"}), namespace("default")
    made.limits.set_namespace(labelled)
    assert made.fair_share.use.owner("uid-plain") == A
    assert made.fair_share.use.owner("uid-named") == QueueKey("b")
    assert made.queue.waiting == {A: 1}
    made.limits.set_namespace(plain, labelled)
    assert made.fair_share.use.owner("uid-plain") == QueueKey(namespace="default")
    assert made.queue.waiting == {QueueKey(namespace="default"): 1}


def test_a_queue_that_is_deleted_and_created_again_finds_its_pods() -> None:
    """Meanwhile they keep their cards, and pods without cards wait."""
    made = state("n0")
    made.limits.set_queue(gpu_queue("a", weight=2))
    made.set_pod(charged("r", "a"))
    rank, amounts = made.fair_share.rank(A), made.fair_share.use.of(A).amounts
    made.limits.drop_queue(gpu_queue("a"))
    assert made.fair_share.use.of(A).amounts == amounts
    assert made.fair_share.rank(A) == (0, 0)
    assert rejection(made, of_queue("a")).reasons == {"QueueUnknown"}
    made.limits.set_queue(gpu_queue("a", weight=2))
    assert made.fair_share.rank(A) == rank != (0, 0)
    assert is_placed(made, of_queue("a"))


def test_cpu_counts_on_nodes_with_cards_only() -> None:
    """What a pod uses of other nodes takes no cards from anybody."""
    made = state("n0")
    made.limits.set_queue(gpu_queue("a"))
    made.set_node(node("plain"))
    containers = [{"name": "main", "resources": {"requests": {"cpu": "4", "memory": "1Gi"}}}]
    made.set_pod(pod("elsewhere", node="plain", labels={names.QUEUE: "a"}, phase="Running", containers=containers))
    assert made.fair_share.use.of(A).amounts == NOTHING
    made.set_pod(pod("beside", node="n0", labels={names.QUEUE: "a"}, phase="Running", containers=containers))
    assert made.fair_share.use.of(A).amounts == (0, 0, 0, 0, 4000, 1 << 30)
    made.agent_reports.set(status("plain"))
    assert made.fair_share.use.of(A).cpu == 8000


@settings(max_examples=60)
@given(st.integers(0, 1 << 32))
def test_a_restart_changes_no_share(seed: int) -> None:
    """A scheduler that reads the pods as they are has the same sums and ranks as one that saw all that happened."""
    chance = random.Random(seed)  # noqa: S311 -- a test
    nodes = [f"n{number}" for number in range(3)]
    queues = [gpu_queue(name, weight=chance.randint(1, 5), priority=chance.randint(0, 1)) for name in "ab"]
    made, pods, team = state(*nodes), dict[str, Pod](), namespace("team")
    made.limits.set_namespace(team)
    for each in queues:
        made.limits.set_queue(each)
    for _ in range(40):
        name = f"p{chance.randint(0, 9)}"
        match chance.choice(("run", "run", "end", "flip", "label")):
            case "run" if name not in pods:
                where: dict[str, Any] = {
                    "node": chance.choice(nodes),
                    "namespace": chance.choice(("default", "team")),
                    "labels": {names.QUEUE: chance.choice("abc")} if chance.random() < 0.5 else {},
                }
                if chance.random() < 0.7:
                    pods[name] = charged(name, chance.choice(("a", "b", "namespace/team")), **where)
                else:
                    pods[name] = allocated(name, memory=250, **where)
                made.set_pod(pods[name])
            case "end" if name in pods:
                made.drop_pod(pods.pop(name))
            case "flip" if name in pods:
                old = pods[name]
                meta = msgspec.structs.replace(old.metadata, labels={names.QUEUE: chance.choice("ab")})
                pods[name] = Pod(meta, old.spec, old.status)
                made.set_pod(pods[name], old)
            case _:
                old_team, team = team, namespace("team", **{names.QUEUE: chance.choice("ab")})
                made.limits.set_namespace(team, old_team)
    again = state(*nodes)
    for running in chance.sample(list(pods.values()), len(pods)):
        again.set_pod(running)
    again.limits.set_namespace(team)
    for each in queues:
        again.limits.set_queue(each)
    assert standing(again) == standing(made)


def standing(of: ClusterState) -> dict[QueueKey, tuple[object, object]]:
    """Return the sums and the rank of each queue with pods."""
    return {key: (of.fair_share.use.of(key), of.fair_share.rank(key)) for key in of.fair_share.use}


def test_of_one_tier_the_oldest_queue_is_first() -> None:
    """The age of a queue is that of its object; without it the name would decide."""
    made = state("n1")
    for name, day, tier in (("a", 2, 0), ("b", 1, 0), ("c", 3, 1)):
        made.limits.set_queue(gpu_queue(name, created=f"2026-01-0{day}T00:00:00Z", priority=tier))
    assert [key.name for key in made.fair_share.queues.by_precedence()] == ["c", "b", "a"]
