"""Preferences only order the nodes, in the same way on both paths, and cost nothing where they have no weight."""

from hypothesis import example, given
from hypothesis import strategies as st

from allocation.steps import Steps, finish
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.cycle.search import Attempt
from scheduler.objects import Pod
from scheduler.settings import NO_PREFERENCES, ScoreWeights
from tests.scheduler.support.builders import node, pod, state
from tests.scheduler.support.gangs import GangWorld
from tests.scheduler.support.preferring import PREFERRED, PreferringWorld, in_, labelled, running, without_preferences
from tests.scheduler.support.scheduling import cycle_of

WEIGHTS = (
    ScoreWeights(),
    ScoreWeights(cards=1),
    ScoreWeights(cards=0, taint_toleration=0),
    ScoreWeights(cards=3, node_resources=5),
    ScoreWeights(network_blocks=3),
)
WORLDS = (PreferringWorld, GangWorld)


def no_fast_path(*_: object, **__: object) -> Steps[None]:
    """Return no result."""
    yield from ()


def attempted(cycle: SchedulingCycle, pending: Pod) -> Attempt:
    """Return the result of a dry run."""
    return finish(cycle.dry_run(pending))


def parts(attempt: Attempt) -> tuple[object, ...]:
    """Return what must be equal in two results, however they were found.

    The fast path does not always know how many nodes fit, and says so.
    """
    result = attempt.result
    if isinstance(result, Scheduled):
        return (result.node, result.allocation, result.charges)
    return (result.note, result.reasons, result.is_held)


@given(st.integers(0, 2**32), st.sampled_from(WEIGHTS), st.sampled_from(WORLDS))
@example(3620140258, WEIGHTS[0], GangWorld)  # the resources of a node change the mix of requests
def test_fast_path_equals_full_path(seed: int, weights: ScoreWeights, kind: type[PreferringWorld]) -> None:
    """The same node, cards and words for pods with preferences, whatever changes between them."""
    world = kind(seed)
    fast, full = (SchedulingCycle(world.state, weights=weights) for _ in range(2))
    full._fast_path.find = no_fast_path  # type: ignore[method-assign]
    for number in range(12):
        pending = world.pod()
        ours, theirs = attempted(fast, pending), attempted(full, pending)
        assert parts(ours) == parts(theirs)
        assert ours.result.note == theirs.result.note or "at least" in ours.result.note
        world.run(pending)
        if number % 3 == 0:
            world.add_node(f"n{world.chance.randint(0, 8)}")


@given(st.integers(0, 2**32), st.sampled_from(WORLDS))
def test_preferences_never_change_which_nodes_take_a_pod(seed: int, kind: type[PreferringWorld]) -> None:
    """The nodes that take it and all rejections are those of the same pod without preferences."""
    world = kind(seed)
    preferring, indifferent = SchedulingCycle(world.state), SchedulingCycle(world.state, weights=NO_PREFERENCES)
    for _ in range(8):
        pending = world.pod()
        ours, theirs = (attempted(cycle, pending).evaluation for cycle in (preferring, indifferent))
        assert (ours is None) == (theirs is None)
        if ours is None or theirs is None:
            continue
        assert ours.scores.keys() == theirs.scores.keys()
        assert ours.nodes == theirs.nodes
        assert ours.rejections.keys() == theirs.rejections.keys()
        assert (ours.allocation is None) == (theirs.allocation is None)


@given(st.integers(0, 2**32))
def test_without_weights_a_pod_goes_where_it_would_go_without_preferences(seed: int) -> None:
    """The same node, cards and words."""
    world = PreferringWorld(seed)
    cycle = SchedulingCycle(world.state, weights=NO_PREFERENCES)
    for _ in range(8):
        pending = world.pod()
        assert parts(attempted(cycle, pending)) == parts(attempted(cycle, without_preferences(pending)))


def test_a_pod_with_preferences_uses_cached_rankings() -> None:
    """Pods that differ in their preferences only share the nodes that take them."""
    made = state("n1", "n2")
    for name in ("n1", "n2"):
        preferring = pod("p", memory=100, affinity={"nodeAffinity": {PREFERRED: [by_host(name)]}})
        result = attempted(cycle_of(made), preferring).result
        assert isinstance(result, Scheduled)
        assert (result.node, result.path) == (name, "cached")
    assert len(cycle_of(made)._fast_path._classes) == 1


def by_host(name: str) -> dict[str, object]:
    """Return a preferred term for one node."""
    return in_("kubernetes.io/hostname", name)


def test_a_node_that_is_lost_while_preferences_are_scored_is_not_chosen() -> None:
    """Whenever it goes, or stops taking the pod; the next best is chosen."""
    steps_taken = 0
    for steps in range(40):
        for lose in ("drop", "taint"):
            made = state(*(f"n{number:03}" for number in range(150)))
            preferring = pod("p", memory=100, affinity={"nodeAffinity": {PREFERRED: [by_host("n007")]}})
            made.set_pod(preferring)
            running_steps = cycle_of(made).schedule(preferring)
            result = None
            try:
                for _ in range(steps):
                    next(running_steps)
                    steps_taken = max(steps_taken, steps)
            except StopIteration as end:
                result = end.value
                assert isinstance(result, Scheduled)
                assert result.node == "n007"
                break
            if lose == "drop":
                made.drop_node(node("n007"))
            else:
                made.set_node(node("n007", spec={"taints": [{"key": "a", "effect": "NoSchedule"}]}))
            result = finish(running_steps)
            assert isinstance(result, Scheduled)
            assert result.node != "n007"
    assert steps_taken > 5


def test_an_unschedulable_pod_with_preferences_has_the_usual_reasons() -> None:
    """Preferences are never among them."""
    made = state()
    made.set_node(labelled("n1", soft=("a",)))
    made.set_pod(running("a", "n1"))
    result = attempted(
        cycle_of(made), pod("p", memory=5000, affinity={"nodeAffinity": {PREFERRED: [by_host("n9")]}})
    ).result
    assert isinstance(result, Unschedulable)
    assert "preferr" not in result.note
