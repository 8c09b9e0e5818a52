"""In small clusters the choice is the cheapest of all, compared with every set of pods on every node."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation.isolation import Isolation
from allocation.names import CLAIM
from allocation.settings import AllocationSettings, IsolationPolicy
from allocation.victims import LOWEST_PRIORITY
from scheduler.preemption.choice import NoPreemption
from scheduler.preemption.node_search import Preemption
from tests.scheduler.preemption.test_choice import budget, chosen
from tests.scheduler.support.builders import allocated, pod, state
from tests.scheduler.support.claims import claim
from tests.scheduler.support.gangs import of_gang
from tests.scheduler.support.quotas import gpu_quota

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.objects import Pod
    from scheduler.state.cluster_state import ClusterState

MEMORY, CARDS, SLOTS = 1000, 2, 4
PRIORITY = 3


class Running(msgspec.Struct, frozen=True):
    """A pod that runs on a card."""

    name: str
    node: str
    card: int
    memory: int
    priority: int
    namespace: str
    app: str
    gang: str
    isolation: Isolation


class World(msgspec.Struct, frozen=True):
    """A cluster, and a pod that waits."""

    nodes: tuple[str, ...]
    running: tuple[Running, ...]
    count: int
    memory: int
    limits: dict[str, int]
    max_pods: int | None
    most_pods_per_node: int | None
    is_dynamic: bool
    allowed: int


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Draw a cluster in which no card is used beyond its capacity."""
    nodes = tuple("abc"[: draw(st.integers(1, 3))])
    running: list[Running] = []
    used: Counter[tuple[str, int]] = Counter()
    for number in range(draw(st.integers(1, 8))):
        node, card = draw(st.sampled_from(nodes)), draw(st.integers(0, CARDS - 1))
        free = MEMORY - used[node, card]
        memory = draw(st.sampled_from([each for each in (200, 300, 500, 700, 1000) if each <= free] or [0]))
        if not memory:
            continue
        used[node, card] += memory
        running.append(
            Running(
                *(f"r{number}", node, card, memory),
                priority=draw(st.integers(0, PRIORITY)),
                namespace=draw(st.sampled_from(("default", "other"))),
                app=draw(st.sampled_from(("", "", "db"))),
                gang=draw(st.sampled_from(("", "", "", "g"))),
                isolation=draw(st.sampled_from((Isolation.NONE, Isolation.NONE, Isolation.MPS))),
            )
        )
    limits: dict[str, int] = draw(
        st.sampled_from(({}, {}, {"nvidia.com/gpumem": 900}, {"nvidia.com/gpumem": 1500}, {"nvidia.com/gpu": 2}))
    )
    return World(
        nodes,
        tuple(running),
        count=draw(st.integers(1, CARDS)),
        memory=draw(st.sampled_from((300, 600, 900, 1000))),
        limits=limits,
        max_pods=draw(st.sampled_from((None, None, 1, 2))),
        most_pods_per_node=draw(st.sampled_from((None, None, 1, 2))),
        is_dynamic=draw(st.booleans()),
        allowed=draw(st.integers(0, 2)),
    )


def fits(world: World, node: str, gone: frozenset[str]) -> bool:
    """Whether the pod would fit, by plain sums."""
    stay = [each for each in world.running if each.name not in gone]
    if world.most_pods_per_node is not None and sum(each.node == node for each in stay) >= world.most_pods_per_node:
        return False
    use: Counter[int] = Counter()
    for each in stay:
        if each.node == node:
            use[each.card] += each.memory if not world.is_dynamic or each.isolation == "none" else MEMORY
    if sum(use[card] + world.memory <= MEMORY for card in range(CARDS)) < world.count:
        return False
    own = [each for each in stay if each.namespace == "default"]
    amounts = {
        "nvidia.com/gpumem": sum(each.memory for each in own) + world.count * world.memory,
        "nvidia.com/gpu": len(own) + world.count,
    }
    if any(amounts[name] > limit for name, limit in world.limits.items()):
        return False
    return world.max_pods is None or len(own) < world.max_pods


def possible(world: World) -> Iterator[frozenset[Running]]:
    """Yield every set of pods that may be evicted together, and after which the pod fits on some node."""
    candidates = [each for each in world.running if each.priority < PRIORITY]
    for size in range(len(candidates) + 1):
        for chosen_ones in itertools.combinations(candidates, size):
            if any((each in chosen_ones) != (other in chosen_ones) for each, other in together(world)):
                continue
            if sum(each.app == "db" and each.namespace == "default" for each in chosen_ones) > world.allowed:
                continue
            gone = frozenset(each.name for each in chosen_ones)
            if any(fits(world, node, gone) for node in world.nodes):
                yield frozenset(chosen_ones)


def together(world: World) -> Iterator[tuple[Running, Running]]:
    """Yield each two pods of one gang."""
    for each, other in itertools.combinations(world.running, 2):
        if each.gang and (each.gang, each.namespace) == (other.gang, other.namespace):
            yield each, other


def cost(pods: frozenset[Running]) -> tuple[int, int]:
    """Return the first two keys of the cost of a set."""
    highest = max((each.priority for each in pods), default=LOWEST_PRIORITY - 1)
    return highest, sum(each.priority - LOWEST_PRIORITY + 1 for each in pods)


def build(world: World) -> ClusterState:
    """Return the state of a cluster."""
    policy: IsolationPolicy = "dynamic" if world.is_dynamic else "static"
    settings = AllocationSettings(most_pods_per_node=world.most_pods_per_node, isolation_policy=policy)
    made = state(*world.nodes, cards=CARDS, settings=settings)
    total: dict[str, Any] = {"limits": world.limits}
    if world.max_pods is not None:
        total["maxPods"] = world.max_pods
    made.limits.set_gpu_quota(gpu_quota(total=total))
    for name in ("default", "other"):
        made.set_claim(of_gang(claim("g", namespace=name, exclusivity="Shared"), "gang"))
    for each in world.running:
        running = allocated(
            each.name,
            node=each.node,
            card=each.card,
            memory=each.memory,
            priority=each.priority,
            namespace=each.namespace,
            labels={"app": each.app} if each.app else {},
            isolation=each.isolation,
        )
        if each.gang:
            running.metadata.annotations[CLAIM] = each.gang
        made.set_pod(running)
    return made


def waiting(world: World) -> Pod:
    """Return the pod that waits."""
    limits = {"nvidia.com/gpu": str(world.count), "nvidia.com/gpumem": str(world.memory)}
    containers = [{"name": "main", "resources": {"limits": limits, "requests": limits}}]
    return pod("waits", priority=PRIORITY, containers=containers)


def seen(made: ClusterState) -> tuple[Any, ...]:
    """Return all that a choice reads and must not change."""
    return (
        made.ledger.used.tobytes(),
        made.ledger.changes.state,
        sorted((each.uid, each.node, each.charges) for each in made.ledger.reservations()),
        made.quotas.headroom("default"),
        [sorted(made.node_cache.pods_of(name)) for name in made.ledger.nodes],
        sorted(made.running),
    )


@settings(max_examples=200, deadline=None)
@given(worlds())
def test_the_choice_is_the_cheapest_of_all_sets_and_changes_nothing(world: World) -> None:
    """By the highest priority, then by the sum of the priorities; no pod of the set could stay, nor a gang."""
    made, sets = build(world), list(possible(world))
    before = seen(made)
    found = chosen(made, waiting(world), budget("db", allowed=world.allowed, app="db"))
    assert seen(made) == before
    if isinstance(found, NoPreemption):
        assert not sets or frozenset() in sets, found.why
        return
    assert isinstance(found, Preemption)
    gone = frozenset(each.pod.metadata.name for each in found.victims)
    victims = frozenset(each for each in world.running if each.name in gone)
    assert victims in sets
    assert cost(victims) == min(map(cost, sets))
    assert fits(world, found.node, gone)
    for victim in victims:
        unit = {other.name for pair in together(world) if victim in pair for other in pair} | {victim.name}
        assert not fits(world, found.node, gone - unit)
