"""Whether pods of a kind may fit now, without a decision: never `no` where a decision would say `yes`."""

from collections.abc import Hashable

from hypothesis import given
from hypothesis import strategies as st

from allocation.steps import finish
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import allocated, node, pod, state, status
from tests.scheduler.support.scheduling import cycle_of, schedule


def rejected(made: ClusterState, memory: int) -> Hashable:
    """Schedule a pod that is rejected, and return its kind."""
    result = finish(schedule(made, pod("asks", memory=memory)))
    assert isinstance(result, Unschedulable)
    assert result.kind is not None
    return result.kind


def full() -> ClusterState:
    """Return a cluster of one node whose two cards are full."""
    made = state("n0")
    cycle_of(made)
    for card in range(2):
        made.set_pod(allocated(f"full-{card}", node="n0", memory=1000, card=card))
    return made


def test_a_kind_that_was_rejected_fits_nowhere_until_a_card_is_free() -> None:
    """And only if enough of it is."""
    made = full()
    small, large = rejected(made, 500), rejected(made, 1000)
    may_fit = cycle_of(made).may_fit
    assert (may_fit(small), may_fit(large)) == (False, False)
    made.set_pod(allocated("full-0", node="n0", memory=400, card=0))
    assert (may_fit(small), may_fit(large)) == (True, False)
    made.drop_pod(allocated("full-0", node="n0", memory=400, card=0))
    assert (may_fit(small), may_fit(large)) == (True, True)


def test_what_was_never_rejected_may_fit() -> None:
    """Nothing is known about it."""
    assert cycle_of(full()).may_fit(b"unknown")


def test_with_another_node_it_is_left_to_a_decision() -> None:
    """To evaluate all nodes takes too long for a step that nothing can interrupt."""
    made = full()
    kind = rejected(made, 500)
    made.set_node(node("n1"))
    made.agent_reports.set(status("n1", healthy=False))
    assert cycle_of(made).may_fit(kind)


@given(st.lists(st.tuples(st.sampled_from((0, 1)), st.integers(0, 10)), max_size=8), st.integers(1, 10))
def test_where_it_says_no_a_decision_does_too(uses: list[tuple[int, int]], tenths: int) -> None:
    """Whatever became of the cards since the rejection."""
    made = full()
    kind = rejected(made, tenths * 100)
    for card, used in uses:
        made.set_pod(allocated(f"full-{card}", node="n0", memory=used * 100, card=card))
        if not cycle_of(made).may_fit(kind):
            assert not isinstance(finish(cycle_of(made).dry_run(pod("asks", memory=tenths * 100))).result, Scheduled)
