"""The order in which pods of several GpuQueues get cards: the next picked pod counts, not a comparison."""

import random
from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from allocation import names
from allocation.fairness.queue_spec import QueueKey
from allocation.steps import finish
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import Scheduled
from scheduler.objects import Pod
from tests.scheduler.support.builders import allocated, pod, state
from tests.scheduler.support.driving import Driver, gpu_queue
from tests.scheduler.support.worlds import bound

CARD = 1000
"""MiB of each card."""


def of_queue(queue: str, name: str, *, memory: int = CARD, **more: Any) -> Pod:
    """Return a waiting pod of a queue; by default it requires a whole card."""
    return pod(name, memory=memory, labels={names.QUEUE: queue}, **more)


def running(queue: str, name: str, *, card: int) -> Pod:
    """Return a pod of a queue that uses a whole card of node n0."""
    return allocated(name, node="n0", memory=CARD, card=card, labels={names.QUEUE: queue})


def driver(*queues: Any, cards: int = 8, running: tuple[Pod, ...] = ()) -> Driver:
    """Return a scheduler for one node, with queues and running pods."""
    made = Driver(state("n0", cards=cards))
    for queue in queues:
        made.state.limits.set_queue(queue)
    for each in running:
        made.state.set_pod(each)
        made.running[each.metadata.name] = each
    return made


# ---- shares ----------------------------------------------------------------------------------------------------------


async def test_the_queues_are_drained_in_ascending_order_of_their_shares() -> None:
    """The queue with the smallest share is first, not the one with the largest, nor the one that was first."""
    use = ("b", "b", "b", "a", "a", "c")
    held = tuple(running(queue, f"r{card}", card=card) for card, queue in enumerate(use))
    made = driver(gpu_queue("b"), gpu_queue("a"), gpu_queue("c"), cards=9, running=held)
    made.add(of_queue("b", "of-b"), of_queue("a", "of-a"), of_queue("c", "of-c"))
    assert await made.settle() == ["of-c", "of-a", "of-b"]


async def test_a_weight_turns_the_order_round() -> None:
    """Half of the cards at a weight of 4 count less than a quarter at a weight of 1."""
    held = tuple(running("b" if card < 4 else "a", f"r{card}", card=card) for card in range(6))
    equal = driver(gpu_queue("a"), gpu_queue("b"), running=held)
    equal.add(of_queue("b", "of-b"), of_queue("a", "of-a"))
    assert await equal.settle() == ["of-a", "of-b"]
    weighted = driver(gpu_queue("a"), gpu_queue("b", weight=4), running=held)
    weighted.add(of_queue("a", "of-a"), of_queue("b", "of-b"))
    assert await weighted.settle() == ["of-b", "of-a"]


async def test_the_first_queue_switches_fair_sharing_on_and_the_last_one_off() -> None:
    """Without GpuQueues the oldest pod of all namespaces is next, with one the pod of the namespace that has less."""

    def waiting() -> tuple[Pod, Pod]:
        rich = pod("rich", memory=CARD, namespace="rich", created="2026-01-01T00:00:00Z")
        return rich, pod("poor", memory=CARD, namespace="poor", created="2026-01-02T00:00:00Z")

    held = (allocated("r", node="n0", memory=CARD, namespace="rich"),)
    without, shared, again = driver(running=held), driver(gpu_queue("any"), running=held), driver(running=held)
    again.state.limits.set_queue(gpu_queue("any"))
    again.state.limits.drop_queue(gpu_queue("any"))
    for made in (without, shared, again):
        made.add(*waiting())
    assert await without.settle() == ["rich", "poor"]
    assert await shared.settle() == ["poor", "rich"]
    assert await again.settle() == ["rich", "poor"]


def test_a_pod_is_charged_when_it_is_assumed_and_only_once() -> None:
    """Its Binding, and what the watch shows of it, change nothing; a failed Binding gives all back."""
    made = state("n0", cards=8)
    made.limits.set_queue(gpu_queue("a"))
    key, cycle = QueueKey("a"), SchedulingCycle(made)
    waiting = of_queue("a", "p", containers=_containers(gpus=2))
    made.set_pod(waiting)
    assert float(made.fair_share.share(key)) == 0
    decision = finish(cycle.schedule(waiting))
    assert isinstance(decision, Scheduled)
    assumed = made.fair_share.use.of(key)
    assert (float(made.fair_share.share(key)), assumed.pods) == (2 / 8, 1)
    amounts = assumed.amounts
    after = bound(waiting, decision)
    made.set_pod(after, waiting)
    assert (made.fair_share.use.of(key).amounts, made.fair_share.use.of(key).pods) == (amounts, 1)
    written = Pod(_annotated(after, str(key)), after.spec, after.status)
    made.set_pod(written, after)
    assert (made.fair_share.use.of(key).amounts, made.fair_share.use.of(key).pods) == (amounts, 1)
    made.drop_pod(written)
    assert made.fair_share.use.of(key).pods == 0
    assert float(made.fair_share.share(key)) == 0


def test_a_failed_binding_gives_back_what_the_pod_was_charged() -> None:
    """Then the share is what it was before."""
    made = state("n0", cards=8)
    made.limits.set_queue(gpu_queue("a"))
    waiting, cycle = of_queue("a", "p"), SchedulingCycle(made)
    made.set_pod(waiting)
    assert isinstance(finish(cycle.schedule(waiting)), Scheduled)
    assert float(made.fair_share.share(QueueKey("a"))) > 0
    cycle.forget(waiting)
    assert float(made.fair_share.share(QueueKey("a"))) == 0
    assert made.fair_share.use.of(QueueKey("a")).pods == 0


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 32))
async def test_each_card_goes_to_the_queue_with_the_smallest_share_of_those_that_wait(seed: int) -> None:
    """Over random histories; the shares are counted again from the running pods before each decision."""
    chance = random.Random(seed)  # noqa: S311 -- a test
    weights = {name: chance.randint(1, 4) for name in "abc"}
    made = driver(*(gpu_queue(name, weight=weight) for name, weight in weights.items()), cards=10)
    waiting: dict[str, str] = {}
    for number in range(60):
        queue = chance.choice("abc")
        waiting[f"p{number}"] = queue
        made.add(of_queue(queue, f"p{number}", created=f"2026-01-01T00:00:{number:02d}Z"))
        if len(made.running) == 10 and chance.random() < 0.7:
            made.end(chance.choice(sorted(made.running)))
        for name in await made.settle():
            held = dict.fromkeys(weights, 0)
            for each in made.running.values():
                held[each.metadata.labels[names.QUEUE]] += each.metadata.name != name
            shares = {queue: Fraction(held[queue], weights[queue]) for queue in waiting.values()}
            assert shares[waiting.pop(name)] == min(shares.values())


# ---- one queue -------------------------------------------------------------------------------------------------------


async def test_a_freed_card_goes_to_the_pod_of_high_priority_that_failed_before() -> None:
    """However often it failed: it does not pause while a new pod of low priority takes the card."""
    made = driver(cards=1, running=(allocated("r", node="n0", memory=CARD),))
    made.add(pod("high", memory=CARD, priority=1000))
    for number in range(5):
        assert await made.settle() == []
        made.add(pod(f"other-{number}", memory=CARD, node="n9", phase="Running"))
        made.state.drop_pod(pod(f"other-{number}", memory=CARD, node="n9"))
    made.add(pod("low", memory=CARD))
    made.end("r")
    assert await made.settle() == ["high"]


async def test_in_a_strict_queue_younger_pods_wait_behind_the_oldest() -> None:
    """In any other queue, a pod that fits does not wait for one that does not."""
    for strategy, placed, after in (
        ("StrictFIFO", [], ["old", "young"]),
        ("BestEffortFIFO", ["young"], []),
    ):
        made = driver(gpu_queue("q", queueingStrategy=strategy), cards=2, running=(running("other", "r", card=0),))
        made.add(of_queue("q", "old", created="2026-01-01T00:00:00Z", containers=_containers(gpus=2, memory=600)))
        made.add(of_queue("q", "young", memory=400, created="2026-01-02T00:00:00Z"))
        assert await made.settle() == placed, strategy
        made.end("r")
        assert await made.settle() == (after or ["old"]), strategy


async def test_in_a_strict_queue_younger_pods_wait_behind_a_gated_one() -> None:
    """It has its place although it is not scheduled."""
    made = driver(gpu_queue("q", queueingStrategy="StrictFIFO"), cards=2)
    made.add(of_queue("q", "old", memory=400, created="2026-01-01T00:00:00Z"))
    made.state.queue.gate("uid-old")
    made.add(of_queue("q", "young", memory=400, created="2026-01-02T00:00:00Z"))
    assert await made.settle() == []
    made.state.queue.ungate("uid-old")
    assert await made.settle() == ["old", "young"]


async def test_the_strict_order_of_a_queue_does_not_bind_the_others() -> None:
    """Pods of other queues go past it."""
    made = driver(gpu_queue("q", queueingStrategy="StrictFIFO"), cards=2, running=(running("other", "r", card=0),))
    made.add(of_queue("q", "old", containers=_containers(gpus=2)), of_queue("other", "free", memory=400))
    made.state.limits.set_queue(gpu_queue("other"))
    assert await made.settle() == ["free"]


# ---- tiers -----------------------------------------------------------------------------------------------------------


def two_tiers(**high: Any) -> Driver:
    """Return a node of one card, which two slices of the lower tier fill."""
    made = driver(gpu_queue("high", priority=10, **high), gpu_queue("low"), cards=1)
    for name in ("r0", "r1"):
        slice_of = allocated(name, node="n0", memory=500, labels={names.QUEUE: "low"})
        made.state.set_pod(slice_of)
        made.running[name] = slice_of
    return made


async def test_a_lower_tier_waits_while_a_higher_one_needs_cards() -> None:
    """A freed slice stays free until the whole card that the higher tier waits for is."""
    made = two_tiers()
    made.add(of_queue("high", "whole"), of_queue("low", "slice", memory=500))
    assert await made.settle() == []
    made.end("r0")
    assert await made.settle() == []
    made.end("r1")
    assert await made.settle() == ["whole"]
    made.end("whole")
    assert await made.settle() == ["slice"]


async def test_a_pod_of_a_higher_tier_that_fits_nowhere_does_not_keep_others_waiting() -> None:
    """No card has as much memory, whoever goes: the lower tier goes on."""
    made = two_tiers()
    made.add(of_queue("high", "hopeless", memory=50 * CARD), of_queue("low", "slice", memory=500))
    made.end("r0")
    assert await made.settle() == ["slice"]


async def test_a_lower_tier_goes_on_when_the_pod_of_the_higher_one_is_deleted() -> None:
    """At once, although no card was freed since."""
    made = two_tiers()
    whole = of_queue("high", "whole")
    made.add(whole, of_queue("low", "slice", memory=500))
    made.end("r0")
    assert await made.settle() == []
    made.state.drop_pod(whole)
    assert await made.settle() == ["slice"]


async def test_a_lower_tier_does_not_wait_once_the_higher_one_has_what_is_desired_for_it() -> None:
    """One pod of a batch of two does not count."""
    made = two_tiers(batchSize=2)
    made.add(of_queue("high", "whole"), of_queue("low", "slice", memory=500))
    made.end("r0")
    assert await made.settle() == ["slice"]


async def test_a_higher_tier_with_all_its_instances_does_not_keep_others_waiting() -> None:
    """What waits for its own queue's limit does not wait for cards."""
    made = two_tiers(maxInstances=1)
    made.end("r0")
    made.add(of_queue("high", "first", memory=500))
    assert await made.settle() == ["first"]
    made.add(of_queue("high", "second", memory=500), of_queue("low", "slice", memory=500))
    made.end("r1")
    assert await made.settle() == ["slice"]


async def test_a_higher_tier_comes_before_priority_and_share() -> None:
    """Within a tier the priority of the pod decides, then the share."""
    made = driver(gpu_queue("high", priority=10), gpu_queue("a"), gpu_queue("b"), cards=8,
                  running=(running("high", "r0", card=0), running("a", "r1", card=1)))  # fmt: skip
    made.add(
        of_queue("b", "b"), of_queue("a", "a"), of_queue("a", "important", priority=5), of_queue("high", "of-high")
    )
    assert await made.settle() == ["of-high", "important", "b", "a"]


def _containers(*, gpus: int, memory: int = CARD) -> list[dict[str, Any]]:
    limits = {"nvidia.com/gpu": str(gpus), "nvidia.com/gpumem": str(memory)}
    return [{"name": "main", "resources": {"limits": limits, "requests": limits}}]


def _annotated(each: Pod, key: str) -> Any:
    meta = each.metadata
    return type(meta)(
        **{field: getattr(meta, field) for field in meta.__struct_fields__ if field != "annotations"},
        annotations={**meta.annotations, names.CHARGED_TO: key},
    )


async def test_in_a_strict_queue_the_next_pod_goes_on_when_the_oldest_is_deleted() -> None:
    """Although nothing else happens that could help it."""
    made = driver(gpu_queue("a", queueingStrategy="StrictFIFO"))
    oldest = pod("oldest", memory=5000, labels={names.QUEUE: "a"}, created="2026-01-01T00:00:00Z")
    made.add(oldest)
    assert await made.settle() == []
    made.add(of_queue("a", "younger", created="2026-01-01T00:00:01Z"))
    assert await made.settle() == []
    made.state.drop_pod(oldest)
    assert await made.settle() == ["younger"]
