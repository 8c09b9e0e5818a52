"""The order of the scheduling queue, and the events for which its pods wait."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.queue.entry import Entry, QueuePosition, Rejected
from scheduler.queue.queueing_hints import ANY_EVENT, ClusterEvent
from scheduler.queue.scheduling_queue import SchedulingQueue
from tests.scheduler.support.builders import Clock, pod
from tests.scheduler.support.order import NoOrder
from tests.scheduler.support.popping import due


def make(clock: Clock) -> SchedulingQueue:
    """Return a queue with pauses of 1 to 8 seconds."""
    return SchedulingQueue(NoOrder(), clock=clock, first_backoff=1.0, longest_backoff=8.0)


async def next_name(queue: SchedulingQueue) -> str:
    """Return the name of the next pod; fail if none is due."""
    return (await popped(queue)).pod.metadata.name


async def popped(queue: SchedulingQueue) -> Entry:
    """Pop a pod that is due; fail if none is."""
    async with asyncio.timeout(10):
        return await queue.pop()


async def is_idle(queue: SchedulingQueue) -> bool:
    """Whether no pod is due."""
    return await due(queue) is None


async def test_priority_comes_before_age_and_age_before_arrival() -> None:
    """A pod of higher priority goes first, then the older one, then the one that was seen first."""
    queue = make(Clock())
    queue.add(pod("late", created="2026-01-01T00:00:02Z"))
    queue.add(pod("early", created="2026-01-01T00:00:01Z"))
    queue.add(pod("twin", created="2026-01-01T00:00:01Z"))
    queue.add(pod("important", created="2026-01-01T00:00:03Z", priority=10))
    assert [await next_name(queue) for _ in range(4)] == ["important", "early", "twin", "late"]


async def test_an_unschedulable_pod_waits_for_an_event_of_its_hint() -> None:
    """Neither time nor another event makes it active."""
    clock = Clock()
    queue = make(clock)
    queue.add(pod("a"))
    queue.add_unschedulable(await popped(queue), Rejected("rejected", frozenset({"CardInsufficientMemory"})))
    clock.now += 100
    queue.notify(ClusterEvent.NODE_CHANGED)
    assert await is_idle(queue)
    queue.notify(ClusterEvent.POD_REMOVED)
    assert await next_name(queue) == "a"


async def test_pauses_after_failed_bindings_double_up_to_a_limit() -> None:
    """No event ends a pause early."""
    clock = Clock()
    queue = make(clock)
    queue.add(pod("a"))
    for pause in (1, 2, 4, 8, 8):
        queue.requeue((await popped(queue)).pod.uid)
        queue.notify(ClusterEvent.POD_REMOVED)
        clock.now += pause - 0.01
        assert await is_idle(queue)
        clock.now += 0.02


async def test_a_pause_ends_without_an_event() -> None:
    """The queue's own timer ends it."""
    queue = SchedulingQueue(NoOrder(), clock=asyncio.get_running_loop().time, first_backoff=0.01, longest_backoff=1.0)
    queue.add(pod("a"))
    queue.requeue((await popped(queue)).pod.uid)
    assert await next_name(queue) == "a"


async def test_a_deleted_pod_is_not_popped() -> None:
    """Whether it was active, or was being scheduled when it was deleted."""
    clock = Clock()
    queue = make(clock)
    queue.add(pod("due"))
    queue.remove("uid-due")
    assert await is_idle(queue)
    queue.add(pod("deciding"))
    entry = await popped(queue)
    queue.remove("uid-deciding")
    queue.add_unschedulable(entry, Rejected("rejected", frozenset({"CardInsufficientMemory"})))
    queue.notify(ClusterEvent.POD_REMOVED)
    clock.now += 100
    assert await is_idle(queue)
    assert len(queue) == 0


async def test_a_pod_that_is_removed_and_added_again_is_popped_once() -> None:
    """Seen, removed and seen again before it is popped: it has one entry, not two."""
    queue = make(Clock())
    queue.add(pod("a"))
    queue.remove("uid-a")
    queue.add(pod("a"))
    assert await next_name(queue) == "a"
    assert await is_idle(queue)


async def test_a_failed_binding_does_not_requeue_a_pod_that_was_added_again() -> None:
    """It was removed and added while its Binding was being written, so it is active already."""
    queue = make(Clock())
    queue.add(pod("a"))
    await popped(queue)
    queue.remove("uid-a")
    queue.add(pod("a"))
    queue.requeue("uid-a")
    assert queue.depths()["backoff"] == 0
    assert await next_name(queue) == "a"


async def test_a_change_of_a_held_pod_makes_it_active() -> None:
    """A toleration that is added lets a held pod be tried again; an update without a change does not."""
    queue = make(Clock())
    queue.add(pod("a"))
    queue.add_unschedulable(await popped(queue), Rejected("rejected", frozenset({"PodHeld"}), is_held=True))
    queue.add(pod("a"))
    assert await is_idle(queue)
    queue.add(pod("a", tolerations=[{"key": "x", "operator": "Exists"}]))
    assert await next_name(queue) == "a"


@pytest.mark.parametrize("event", list(ClusterEvent))
async def test_any_event_helps_a_pod_without_reasons(event: ClusterEvent) -> None:
    """A result without reasons has a hint for every kind of event."""
    clock = Clock()
    queue = make(clock)
    queue.add(pod("a"))
    queue.add_unschedulable(await popped(queue), Rejected("rejected", frozenset()))
    clock.now += 100
    queue.notify(event)
    assert await next_name(queue) == "a"


async def test_a_freed_card_is_offered_to_the_first_pod_in_order() -> None:
    """However often a pod of high priority was rejected, a new pod of lower priority does not overtake it."""
    clock = Clock()
    queue = make(clock)
    queue.add(pod("high", priority=1000))
    for _ in range(6):
        queue.add_unschedulable(await popped(queue), Rejected("full", frozenset()))
        queue.notify(ClusterEvent.POD_REMOVED)
    queue.add_unschedulable(await popped(queue), Rejected("full", frozenset()))
    queue.add(pod("low"))
    queue.notify(ClusterEvent.POD_REMOVED)
    assert [await next_name(queue), await next_name(queue)] == ["high", "low"]


async def test_one_of_many_equal_pods_is_tried_for_each_event() -> None:
    """If one is rejected, all are: an event for a thousand equal pods costs one decision."""
    queue = make(Clock())
    for index in range(1000):
        queue.add(pod(f"p{index:04}"))
    for _ in range(1000):
        queue.add_unschedulable(await popped(queue), Rejected("full", frozenset(), kind="equal"))
    queue.notify(ClusterEvent.POD_REMOVED)
    entry = await popped(queue)
    assert entry.pod.metadata.name == "p0000"
    queue.add_unschedulable(entry, Rejected("full", frozenset(), kind="equal"))
    assert await is_idle(queue)


async def test_the_next_of_equal_pods_is_tried_when_one_is_placed() -> None:
    """As long as the first of them fits, another may fit too."""
    queue = make(Clock())
    for index in range(3):
        queue.add(pod(f"p{index}"))
    for _ in range(3):
        queue.add_unschedulable(await popped(queue), Rejected("full", frozenset(), kind="equal"))
    queue.notify(ClusterEvent.POD_REMOVED)
    assert [await next_name(queue) for _ in range(3)] == ["p0", "p1", "p2"]


async def test_an_event_during_a_decision_is_not_missed() -> None:
    """A card that is freed during a decision lets the pod be tried again, although the pod was not waiting yet."""
    queue = make(Clock())
    queue.add(pod("a"))
    entry = await popped(queue)
    queue.notify(ClusterEvent.POD_REMOVED)
    queue.add_unschedulable(entry, Rejected("full", frozenset()))
    assert await next_name(queue) == "a"


async def test_outdated_reasons_are_computed_again_after_a_pause() -> None:
    """Each event evaluates at once whether the pod fits; the reasons are computed only when the pause is over."""
    clock = Clock()
    queue = make(clock)
    queue.add(pod("a"))
    entry = await popped(queue)
    assert entry.explain
    queue.add_unschedulable(entry, Rejected("full", frozenset()))
    for _ in range(3):
        queue.notify(ClusterEvent.POD_REMOVED)
        entry = await popped(queue)
        assert not entry.explain
        queue.add_unschedulable(entry, Rejected("", frozenset()))
    assert await is_idle(queue)
    clock.now += 1.01
    entry = await popped(queue)
    assert entry.explain


async def test_new_reasons_are_published_for_all_equal_pods() -> None:
    """When the reasons of one have changed, the others are scheduled again, one after another."""
    clock = Clock()
    queue = make(clock)
    names = ("first", "second", "third")
    for name in names:
        queue.add(pod(name))
    for _ in names:
        entry = await popped(queue)
        queue.add_unschedulable(entry, Rejected("full", frozenset(), kind="equal"))
        entry.published = "full"
    queue.notify(ClusterEvent.POD_REMOVED)
    for name in names:
        entry = await popped(queue)
        queue.add_unschedulable(entry, Rejected("too small", frozenset(), kind="equal"))
        entry.published = "too small"
        assert entry.pod.metadata.name == name
        assert await is_idle(queue)
        clock.now += 1.01
    assert await is_idle(queue), "the reasons of all are up to date"


# ---- namespaces ------------------------------------------------------------------------------------------------------


async def test_a_namespace_beyond_its_credit_waits_behind_the_others() -> None:
    """Whatever the age and priority of its pods, those of namespaces within their credit come first."""
    clock = Clock()
    queue = make(clock)
    queue.add(pod("costly", namespace="greedy", priority=1000))
    entry = await popped(queue)
    queue.charge(entry, 3.0, placed=False)
    queue.add_unschedulable(entry, Rejected("full", frozenset()))
    queue.add(pod("more", namespace="greedy", priority=1000))
    queue.add(pod("cheap", namespace="modest"))
    queue.notify(ClusterEvent.POD_REMOVED)
    assert await next_name(queue) == "cheap"
    assert {await next_name(queue), await next_name(queue)} == {"costly", "more"}, "no other namespace uses the time"


async def test_a_debt_is_paid_off_as_time_passes() -> None:
    """After a while the pods of the namespace compete with all others again."""
    clock = Clock()
    queue = make(clock)
    queue.add(pod("costly", namespace="greedy", priority=1000))
    entry = await popped(queue)
    queue.charge(entry, 1.0, placed=False)
    queue.add_unschedulable(entry, Rejected("full", frozenset()))
    clock.now += 60
    queue.add(pod("cheap", namespace="modest"))
    queue.notify(ClusterEvent.POD_REMOVED)
    assert await next_name(queue) == "costly"


async def test_namespaces_without_pods_are_forgotten_once_their_debt_is_paid() -> None:
    """Users create and delete namespaces as they like, and what is kept of them has to end."""
    clock = Clock()
    queue = make(clock)
    queue.add(pod("costly", namespace="greedy"))
    queue.charge(await popped(queue), 3.0, placed=False)
    queue.add(pod("stays", namespace="modest"))
    queue.remove("uid-costly")
    for seconds, kept in ((0, {"greedy", "modest"}), (60, {"modest"})):
        clock.now += seconds
        for _ in range(64):  # they are looked for after as many events
            queue.notify(ClusterEvent.POD_REMOVED)
        assert await next_name(queue) == "stays"
        queue.reactivate(queue._entries["uid-stays"])
        assert {key.namespace for key in queue.competition._queues} == kept


async def test_a_namespace_that_stood_back_competes_again_once_its_debt_is_paid() -> None:
    """No event of its own is needed: the pods that waited meanwhile have their place before younger ones."""
    clock = Clock()
    queue = make(clock)
    queue.add(pod("costly", namespace="greedy", priority=1000))
    entry = await popped(queue)
    queue.charge(entry, 3.0, placed=False)
    queue.add_unschedulable(entry, Rejected("full", frozenset()))
    queue.add(pod("more", namespace="greedy", priority=1000))
    queue.add(pod("cheap", namespace="modest"))
    assert await next_name(queue) == "cheap"
    clock.now += 60
    queue.add(pod("late", namespace="modest"))
    assert [await next_name(queue) for _ in range(2)] == ["more", "late"]


async def test_of_namespaces_beyond_their_credit_the_smallest_debt_comes_first() -> None:
    """They share the time that no other namespace uses."""
    queue = make(Clock())
    for name, cost in (("a", 3.0), ("b", 1.0), ("c", 2.0)):
        queue.add(pod(name, namespace=name))
        entry = await popped(queue)
        queue.charge(entry, cost, placed=False)
        queue.add_unschedulable(entry, Rejected("full", frozenset()))
    queue.notify(ClusterEvent.POD_REMOVED)
    assert [await next_name(queue) for _ in range(3)] == ["b", "c", "a"]


async def test_a_decision_that_places_its_pod_is_free_unless_it_is_long() -> None:
    """A namespace with many pods that fit keeps its place in the order."""
    queue = make(Clock())
    for index in range(1000):
        queue.add(pod(f"fits-{index}", namespace="busy", priority=1))
        queue.charge(await popped(queue), 0.001, placed=True)
    queue.add(pod("next", namespace="busy", priority=1))
    queue.add(pod("other", namespace="idle"))
    assert await next_name(queue) == "next"


async def test_beyond_the_credit_active_and_unschedulable_pods_take_turns() -> None:
    """Frequent events starve neither the new pods of a namespace nor its last unschedulable one."""
    clock = Clock()
    queue = make(clock)
    for index in range(4):
        queue.add(pod(f"old-{index}", namespace="greedy"))
    for _ in range(4):
        entry = await popped(queue)
        queue.charge(entry, 10.0, placed=False)
        queue.add_unschedulable(entry, Rejected("full", frozenset()))
    for index in range(4):
        queue.add(pod(f"new-{index}", namespace="greedy", created="2026-01-02T00:00:00Z"))
    seen: list[str] = []
    while len(seen) < 8:
        queue.notify(ClusterEvent.POD_REMOVED)
        entry = await popped(queue)
        seen.append(entry.pod.metadata.name)
        queue.add_unschedulable(entry, Rejected("full", frozenset()))
    assert {name for name in seen if name.startswith("old")} == {"old-0", "old-1", "old-2", "old-3"}
    assert {name for name in seen if name.startswith("new")} == {"new-0", "new-1", "new-2", "new-3"}


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.booleans()), min_size=1, max_size=40))
async def test_within_the_credit_one_order_holds_for_all(pods: list[tuple[int, int, bool]]) -> None:
    """Priority, then age, whatever the namespaces, and whether a pod is new or was rejected before."""
    queue = make(Clock())
    for index, (space, priority, is_rejected) in enumerate(pods):
        if is_rejected:
            queue.add(pod(f"p{index}", namespace=f"n{space}", priority=priority))
    while rejected := [each for each in queue if each.place == "active"]:
        queue.add_unschedulable(await popped(queue), Rejected("full", frozenset()))
        assert len(rejected) <= len(pods)
    for index, (space, priority, is_rejected) in enumerate(pods):
        if not is_rejected:
            queue.add(pod(f"p{index}", namespace=f"n{space}", priority=priority))
    expected = [each.pod.metadata.name for each in sorted(queue, key=lambda each: each.order)]
    queue.notify(ANY_EVENT)
    assert [await next_name(queue) for _ in pods] == expected
    assert await is_idle(queue)


@given(st.lists(st.tuples(st.sampled_from("awfrxtb"), st.integers(0, 5)), max_size=60))
async def test_depths_add_up_after_any_events(events: list[tuple[str, int]]) -> None:
    """Each pod is in one place: the places add up to the pods, and each waiting pod can be popped."""
    clock = Clock()
    queue = make(clock)
    popped_entries: list[Entry] = []
    for event, index in events:
        match event:
            case "a":
                queue.add(pod(f"p{index}", namespace=f"n{index % 2}"))
            case "w":
                queue.notify(ClusterEvent.POD_REMOVED)
            case "x":
                queue.remove(f"uid-p{index}")
            case "t":
                clock.now += index
            case "b" if (entry := await due(queue)) is not None:
                popped_entries.append(entry)
            case "f" if popped_entries:
                queue.add_unschedulable(
                    popped_entries.pop(), Rejected("full" if index % 2 else "", frozenset(), kind=index % 3)
                )
            case "r" if popped_entries:
                queue.requeue((popped_entries.pop()).pod.uid)
        assert sum(queue.depths().values()) == len(queue)
        assert queue.depths()["binding"] <= len(popped_entries)
    clock.now += 100
    queue.notify(ANY_EVENT)
    left = {each.pod.metadata.name for each in queue if each.place != "binding"}
    names = set()
    while (entry := await due(queue)) is not None:
        names.add(entry.pod.metadata.name)
    assert names == left


async def test_a_gated_pod_is_not_scheduled_whatever_happens() -> None:
    """Neither an event nor a change of the pod ends the wait; others go on, and ungating does."""
    queue = make(Clock())
    queue.add(pod("gated", priority=10))
    queue.gate("uid-gated")
    queue.add(pod("other"))
    assert await next_name(queue) == "other"
    queue.notify(ANY_EVENT)
    queue.add(pod("gated", priority=10, labels={"changed": "yes"}))
    queue.wake(["uid-gated"])
    assert await is_idle(queue)
    assert queue.depths()["unschedulable"] == 1
    queue.ungate("uid-gated")
    assert await next_name(queue) == "gated"


async def test_a_gated_pod_may_be_deleted() -> None:
    """And is created again as any other."""
    queue = make(Clock())
    queue.add(pod("gated"))
    queue.gate("uid-gated")
    assert await is_idle(queue)
    queue.remove("uid-gated")
    queue.ungate("uid-gated")
    assert await is_idle(queue)
    queue.add(pod("gated"))
    assert await next_name(queue) == "gated"


async def test_the_position_of_a_pod_says_what_it_waits_for() -> None:
    """For how long, after how many attempts, and until when it pauses; a held pod waits like an unschedulable one."""
    clock = Clock()
    queue = make(clock)
    for name in ("active", "rejected", "held", "failed"):
        queue.add(pod(name))
    entries = {entry.pod.metadata.name: entry for entry in [await popped(queue) for _ in range(4)]}
    queue.reactivate(entries["active"])
    queue.add_unschedulable(entries["rejected"], Rejected("no card", frozenset({"CardInsufficientMemory"})))
    queue.add_unschedulable(entries["held"], Rejected("a field", frozenset({"PodHeld"}), is_held=True))
    queue.requeue("uid-failed")
    clock.now += 0.25
    shown = {name: queue.position(f"uid-{name}") for name in entries}
    assert shown == {
        "active": QueuePosition("active", 0, 0.25, 0.0, ()),
        "rejected": QueuePosition("unschedulable", 1, 0.25, 0.0, ("pod_removed", "cards_changed")),
        "held": QueuePosition("unschedulable", 1, 0.25, 0.0, ()),
        "failed": QueuePosition("backoff", 1, 0.25, 0.75, ()),
    }
    assert queue.position("uid-unknown") is None
    queue.add(pod("first", priority=10))
    assert [entry.pod.metadata.name for entry in queue.in_order()] == ["first", *entries]
