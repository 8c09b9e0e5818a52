"""What the queue gives apart from its next pod: pods by UID, several at once, and the first one of each queue."""

import pytest

from allocation.fairness.queue_spec import QueueKey
from allocation.fairness.shares import Amounts
from allocation.steps import finish
from scheduler.queue import competition
from scheduler.queue.entry import Entry, Rejected
from scheduler.queue.queueing_hints import ClusterEvent
from scheduler.queue.scheduling_queue import SchedulingQueue
from tests.scheduler.support.builders import Clock, pod
from tests.scheduler.support.order import NoOrder

FULL = frozenset({"CardInsufficientMemory"})
DEMAND: Amounts = (600, 0, 1, 0, 0, 0)


def filled(*names: str, clock: Clock | None = None) -> SchedulingQueue:
    """Return a queue of pods, each given as `namespace/name`, the oldest first."""
    made = SchedulingQueue(NoOrder(), clock=clock or Clock(), first_backoff=1.0, longest_backoff=8.0)
    for number, each in enumerate(names):
        namespace, name = each.split("/")
        made.add(pod(name, namespace=namespace, created=f"2026-01-01T00:00:{number:02}Z"))
    return made


def entry(queue: SchedulingQueue, name: str) -> Entry:
    """Return the entry of a pod that is there."""
    found = queue.get(f"uid-{name}")
    assert found is not None
    return found


def reject(queue: SchedulingQueue, *names: str, demand: Amounts | None = DEMAND, is_held: bool = False) -> None:
    """Let no node take some pods, each for reasons of its own."""
    for each in queue.take([f"uid-{name}" for name in names]):
        queue.add_unschedulable(each, Rejected("full", FULL, demand=demand, is_held=is_held))


def drained(queue: SchedulingQueue) -> list[str]:
    """Return the names of the pods that are due, in order."""
    names = []
    while (found := queue.pop_due()) is not None:
        names.append(found.pod.metadata.name)
    return names


def test_a_pod_is_found_by_its_uid() -> None:
    """Its entry, and its last known state."""
    queue = filled("x/a", "x/b")
    assert entry(queue, "b").pod.metadata.name == "b"
    found = queue.pod("uid-b")
    assert found is not None
    assert found.metadata.name == "b"
    assert queue.pod("uid-ghost") is queue.get("uid-ghost") is None


def test_pods_are_taken_together_from_wherever_they_are() -> None:
    """Not those that are being bound, nor those that are gone; what is taken is not popped, and can be put back."""
    queue = filled("x/active", "x/rejected", "x/held", "x/pausing", "x/bound", "x/other")
    reject(queue, "rejected")
    reject(queue, "held", is_held=True)
    queue.take(["uid-pausing", "uid-bound"])
    queue.requeue("uid-pausing")
    assert queue.depths() == {"active": 2, "backoff": 1, "unschedulable": 2, "binding": 1}
    names = ("other", "pausing", "ghost", "bound", "held", "rejected", "active")
    taken = queue.take([f"uid-{name}" for name in names])
    assert [each.pod.metadata.name for each in taken] == ["other", "pausing", "held", "rejected", "active"]
    assert {each.place for each in taken} == {"binding"}
    assert queue.depths() == {"active": 0, "backoff": 0, "unschedulable": 0, "binding": 6}
    queue.notify(ClusterEvent.POD_REMOVED)
    assert drained(queue) == []
    queue.reactivate(taken[0])
    assert drained(queue) == ["other"]


def test_pods_that_are_removed_are_counted_nowhere() -> None:
    """Neither where they were, nor in their queue."""
    queue = filled("x/a", "x/b", "y/c")
    queue.remove("uid-a")
    queue.remove("uid-c")
    assert queue.depths()["active"] == 1
    assert dict(queue.waiting) == {QueueKey(namespace="x"): 1}


def test_each_of_several_pods_is_woken() -> None:
    """Those that wait for an event and those that are held; one that is gone keeps no other asleep."""
    queue = filled("x/rejected", "x/held", "x/asleep")
    reject(queue, "rejected", "asleep")
    reject(queue, "held", is_held=True)
    queue.wake(["uid-ghost", "uid-held", "uid-rejected"])
    assert drained(queue) == ["rejected", "held"]


def test_the_listener_knows_who_is_woken() -> None:
    """By their UIDs; of an event that may help any pod it gets none."""
    known: list[tuple[str, ...]] = []
    queue = SchedulingQueue(
        NoOrder(), clock=Clock(), first_backoff=1, longest_backoff=8, on_event=lambda uids: known.append((*uids,))
    )
    queue.add(pod("a"))
    queue.wake(["uid-a"])
    queue.wake([])
    queue.notify(ClusterEvent.POD_REMOVED)
    assert known == [("uid-a",), ()]


def first_waiting(queue: SchedulingQueue, *patient: str) -> tuple[list[str], int]:
    """Return the first pods that wait for cards, except `patient` ones, and the number of interruptions."""
    steps = queue.competition.demanding(lambda each: each.pod.metadata.name not in patient)
    interruptions = 0
    try:
        while True:
            next(steps)
            interruptions += 1
    except StopIteration as end:
        return [each.pod.metadata.name for each in end.value], interruptions


def test_the_first_pod_of_each_queue_that_waits_for_cards_is_found() -> None:
    """The oldest that has waited enough, of those that would fit if other pods were gone."""
    queue = filled("x/hopeless", "x/old", "x/young", "y/only", "z/active")
    reject(queue, "hopeless", demand=None)
    reject(queue, "young", "old", "only")
    assert first_waiting(queue)[0] == ["old", "only"]
    assert first_waiting(queue, "old")[0] == ["young", "only"]
    assert first_waiting(queue, "old", "young")[0] == ["only"]
    assert first_waiting(queue, "old", "young", "only")[0] == []


def test_of_equal_pods_only_the_first_is_asked_about() -> None:
    """Pods of one kind have one lane, also where a pod of another kind is older."""
    queue = filled("x/other", "x/a", "x/b")
    reject(queue, "other")
    for each in queue.take(["uid-b", "uid-a"]):
        queue.add_unschedulable(each, Rejected("full", FULL, kind="equal", demand=DEMAND))
    assert first_waiting(queue, "other")[0] == ["a"]
    assert first_waiting(queue, "other", "a")[0] == []


def test_the_search_for_pods_that_wait_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some kinds of pods, and after each queue."""
    monkeypatch.setattr(competition, "_STEP", 3)
    queue = filled(*(f"x/{name}" for name in "abcdefg"), "y/z")
    reject(queue, *"abcdefgz")
    assert first_waiting(queue) == (["a", "z"], 4)


def test_a_queue_without_pods_has_credit() -> None:
    """Another one as long as the time that it used is within its budget, which is paid off."""
    clock, poor, unknown = Clock(), QueueKey(namespace="x"), QueueKey(namespace="ghost")
    queue = filled("x/a", clock=clock)
    assert queue.competition.has_credit(unknown, clock())
    assert queue.competition.has_credit(poor, clock())
    queue.charge(entry(queue, "a"), 1.0, placed=False)
    assert not queue.competition.has_credit(poor, clock())
    assert queue.competition.has_credit(unknown, clock())
    assert not queue.competition.has_credit(poor, clock() + 7)
    assert queue.competition.has_credit(poor, clock() + 8)


def test_a_decision_that_places_its_pod_is_nearly_free() -> None:
    """One that does not is charged as it is."""
    queue, key, now = filled("x/a"), QueueKey(namespace="x"), Clock()()
    for _ in range(300):
        queue.charge(entry(queue, "a"), 0.001, placed=True)
    assert queue.competition.has_credit(key, now)
    for _ in range(300):
        queue.charge(entry(queue, "a"), 0.001, placed=False)
    assert not queue.competition.has_credit(key, now)
    assert finish(queue.competition.demanding(lambda _: True)) == []
