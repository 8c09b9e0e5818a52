"""Nodes close and open one by one, by events and as time passes, and rankings evaluate these nodes again."""

import copy
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.names import HAMI_HANDSHAKE, HAMI_REGISTER
from allocation.reasons import NodeReason, NodeRejection
from allocation.steps import finish
from scheduler.cycle.result import Scheduled
from scheduler.filters.node_rejections import NodeRejections
from scheduler.state.agent_leases import AgentLeases
from scheduler.state.closed_nodes import ClosedNodes
from scheduler.state.plugin_nodes import PluginNodes
from tests.scheduler.support.builders import Clock, lease, node, pod, state
from tests.scheduler.support.scheduling import cycle_of

NODES = ("a", "b", "c")
COUNTED = "nvidia.com/gpu"


def rejection(number: int) -> NodeRejection:
    """Return one of several rejections."""
    return NodeRejection(NodeReason.InventoryRefused, f"reason {number}", resolvable=False)


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(NODES), st.integers(0, 2)), max_size=40))
def test_the_last_source_says_why(events: list[tuple[int, str, int]]) -> None:
    """The result is that of a merge of all sources, and each change of it is reported once, and nothing else."""
    sources = [NodeRejections() for _ in range(3)]
    changed: list[str] = []
    opened: list[bool] = []
    closed = ClosedNodes(
        *sources, timed=(), clock=lambda: 0.0, on_change=changed.append, on_open=lambda: opened.append(True)
    )
    for source, name, number in events:
        before = dict(closed.now())
        changed.clear()
        opened.clear()
        sources[source].set(name, rejection(number) if number else None)
        merged = {**sources[0], **sources[1], **sources[2]}
        assert closed.now() == merged
        assert changed == [each for each in NODES if before.get(each) != merged.get(each)]
        assert opened == [True] * len(before.keys() - merged.keys())


@given(st.integers(0, 1 << 32))
def test_leases_are_as_current_as_if_all_were_looked_at(seed: int) -> None:
    """A look that is not due would find nothing new, whatever Leases came, went, and were renewed."""
    chance, clock = random.Random(seed), Clock()  # noqa: S311 -- a test
    leases = AgentLeases(clock=clock)
    for number in range(60):
        clock.now += chance.choice((0, 0.5, 7, 31, 60, 61))
        name = chance.choice(NODES)
        renewed = lease(name, renewed=f"2026-01-01T00:00:00.{number:06}Z", seconds=chance.choice((20, 60, None)))
        if chance.random() < 0.2:
            renewed.metadata.name = renewed.metadata.name.replace("agent-", "gpu-")
        match chance.randint(0, 6):
            case 0:
                leases.track(name)
            case 1:
                leases.untrack(name)
            case 2 | 3 | 4:
                leases.set_lease(renewed)
            case 5:
                leases.drop_lease(renewed)
        if clock.now > leases.due:
            leases.refresh(clock.now)
        whole = copy.deepcopy(leases)
        whole.refresh(clock.now)
        assert dict(leases.rejections) == dict(whole.rejections)
        assert leases.due <= whole.due
        assert set(leases.rejections) == {each for each in NODES if leases.has_expired(each)}


@given(st.integers(0, 1 << 32))
def test_plugins_are_as_current_as_if_all_were_looked_at(seed: int) -> None:
    """The same for the nodes that HAMi's plugin serves, and for those that cannot be locked."""
    chance, clock = random.Random(seed), Clock()  # noqa: S311 -- a test
    plugins = PluginNodes(clock=clock, resource=COUNTED)
    for _ in range(60):
        clock.now += chance.choice((0, 1, 30, 60, 61))
        name = chance.choice(NODES)
        handshake = chance.choice(("", "Requesting_2026.01.01 00:00:00", "Requesting_2026-01-01 00:00:00", "Deleted_x"))
        annotations = {HAMI_HANDSHAKE: handshake, **({HAMI_REGISTER: "x"} if chance.random() < 0.8 else {})}
        allocatable = {COUNTED: chance.choice(("0", "8"))} if chance.random() < 0.3 else {}
        match chance.randint(0, 6):
            case 0:
                plugins.drop_node(name)
            case 1:
                plugins.set_agent(name)
            case 2:
                plugins.drop_agent(name)
            case 3:
                plugins.close(name, f"node {name} cannot be locked")
            case 4:
                plugins.reopen(name)
            case _:
                changed = node(
                    name, metadata={"name": name, "annotations": annotations}, status={"allocatable": allocatable}
                )
                plugins.set_node(changed)
        if clock.now > plugins.due:
            plugins.refresh(clock.now)
        whole = copy.deepcopy(plugins)
        whole.refresh(clock.now)
        assert dict(plugins.rejections) == dict(whole.rejections)
        assert plugins.due <= whole.due


@pytest.mark.parametrize("sleeps", [True, False], ids=["time passes", "an event"])
def test_a_ranking_follows_what_closes_a_node(sleeps: bool) -> None:  # noqa: FBT001
    """A node is closed, and opened, for pods whose nodes are ranked already; a result that is kept does not stay."""
    clock = Clock()
    made = state("n1", clock=clock)
    made.set_lease(lease("n1"))
    cycle = cycle_of(made)

    def is_placed(name: str) -> bool:
        result = finish(cycle.schedule(pod(name, memory=1)))
        finish(cycle.dry_run(pod(name, memory=1)))  # the ranking has seen all changes
        return isinstance(result, Scheduled) and result.path == "cached"

    assert is_placed("a")
    if sleeps:
        clock.now += 61
    else:
        made.plugin_nodes.close("n1", "it cannot be locked")
    assert not is_placed("b")
    assert not is_placed("c")
    if sleeps:
        made.set_lease(lease("n1", renewed="2026-01-01T01:00:00.000000Z"))
    else:
        made.plugin_nodes.reopen("n1")
    assert is_placed("d")
