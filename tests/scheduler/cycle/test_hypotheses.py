"""A hypothesis changes nothing, and its result is that of a cluster in which it is true."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allocation.allocation import Charge
from allocation.ledger.ledger import Reservation
from allocation.steps import Steps, finish
from scheduler.cycle import evaluation, lifts
from scheduler.cycle.result import Scheduled
from scheduler.extender import filtering, preemption, preemption_wire, wire
from scheduler.gpu_requirements import GpuRequirements
from scheduler.holds import Hold, HoldCause
from scheduler.objects import Pod
from scheduler.patience import held_cards
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.preempting import chooser_of
from tests.scheduler.support.scheduling import cycle_of
from tests.scheduler.support.worlds import World
from tests.support.depth import repetitions

pytestmark = pytest.mark.long
SEEDS = st.integers(0, 2**32)


class HeldWorld(World):
    """A random cluster with holds: for the pod that asks, or for others of any rank, on free cards or on used ones.

    Attributes:
        asks: a pod that waits.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.asks = self.pod(priority=5)
        self.state.set_pod(self.asks)
        for number in range(self.chance.randint(0, 6)):
            self.hold(self.pod(priority=self.chance.choice((0, 4, 5, 9))), number)
        if self.chance.random() < 0.5:
            self.hold(self.asks, 99)

    def hold(self, waits: Pod, number: int) -> None:
        """Hold one or two cards of a node."""
        state, chance = self.state, self.chance
        reported = [each for name in state.ledger.nodes if (each := state.ledger.inventory(name)) and each.cards]
        if not reported:
            return
        inventory = chance.choice(reported)
        cards = chance.sample(inventory.cards, min(len(inventory.cards), chance.choice((1, 1, 2))))
        charges = tuple(
            Charge(card.uuid, chance.choice((500, card.memory_mib)), chance.choice((0, 1000)), 1, card.parent)
            for card in cards
        )
        key, rank = state.fair_share.key(waits), state.fair_share.pod_rank(waits)
        cause: HoldCause = "patience" if number % 2 else "preemption"
        state.holds.add(Hold(waits.uid, key, rank, inventory.node, charges, frozenset(), cause), waits)

    @property
    def requirements(self) -> GpuRequirements | None:
        """What the pod that asks requires; None if it is held."""
        found = cycle_of(self.state).requirements(self.asks)
        return found if isinstance(found, GpuRequirements) else None

    def headroom(self) -> Any:
        """Return what the quotas leave to the pod that asks."""
        return self.state.requirements.headroom(self.asks)

    def victims(self) -> dict[str, list[str]]:
        """Return some pods of each node, by UID."""
        chance = random.Random(self.serial)  # noqa: S311 -- a test
        pods = {name: [each.uid for each in self.state.ledger.reservations(name) if each.is_pod] for name in self.nodes}
        return {name: chance.sample(uids, chance.randint(0, len(uids))) for name, uids in pods.items()}

    @property
    def nodes(self) -> list[str]:
        """The names of all nodes."""
        return sorted(self.state.node_cache.names)


def snapshot(state: ClusterState) -> tuple[object, ...]:
    """Return everything that a decision reads and a hypothesis might alter."""
    ledger, cache, share = state.ledger, state.node_cache, state.fair_share
    sums = (state.quotas.counted, share.use, share.held)
    return (
        {each.uid: each for each in ledger.reservations()},
        {name: [*map(list, ledger.used_lists(row))] for name, row in ledger._rows.items()},
        ledger.used.tobytes(),
        ledger.fullness.tobytes(),
        ledger.pods.tobytes(),
        ledger.isolation.locks.tobytes(),
        ledger.changes.state,
        {name: dict(used) for name, used in cache._used.items()},
        {name: set(pods) for name, pods in cache._on_node.items()},
        [{owner: msgspec.to_builtins(use.of(owner)) for owner in use} for use in sums],
        {hold.uid: hold for hold in state.holds},
        len(state.instance_requests),
    )


def preempting(world: HeldWorld) -> preemption_wire.PreemptionArgs:
    """Return what kube-scheduler asks about the pod and its own victims."""
    proposed = {name: {"Pods": [{"UID": uid} for uid in uids]} for name, uids in world.victims().items()}
    fields = {"Pod": world.asks, "NodeNameToVictims": None, "NodeNameToMetaVictims": proposed}
    return preemption_wire.decode(msgspec.json.encode(fields))


def dry_run(world: HeldWorld) -> Steps[object]:
    """What would happen to the pod?"""
    return cycle_of(world.state).dry_run(world.asks)


def choose(world: HeldWorld) -> Steps[object]:
    """Who would be preempted for it?"""
    return chooser_of(world.state).choose(world.asks)


def preempt(world: HeldWorld) -> Steps[object]:
    """Which nodes would take it without the victims of kube-scheduler?"""
    more = preemption.of_chooser(chooser_of(world.state), world.asks)
    return preemption.preempt(world.state, preempting(world), more=more)


def hold_cards(world: HeldWorld) -> Steps[object]:
    """Which cards would be held for it, and is what is held still possible?"""
    requirements, state = world.requirements, world.state
    if requirements is None or not requirements.request:
        return
    yield from held_cards.choose(state, world.asks, requirements, world.headroom())
    for hold in state.holds:
        uid = hold.reservation
        held_cards.is_possible(state, world.asks, requirements, world.headroom(), hold.node, hold=uid)


def filter_lifted(world: HeldWorld) -> Steps[object]:
    """Which nodes would the extender name?"""
    lift = lifts.own(world.state, world.asks) | lifts.lower(world.state, world.asks)
    return filtering.filter_(world.state, wire.Args.of_pod(world.asks, world.nodes), lift=lift)


HYPOTHESES = [dry_run, choose, preempt, hold_cards, filter_lifted]


@pytest.mark.parametrize("ask", HYPOTHESES)
@given(SEEDS)
def test_a_hypothesis_changes_nothing(ask: Callable[[HeldWorld], Steps[object]], seed: int) -> None:
    """After no step of it, and no follower of the ledger is called; whether it ends, is cancelled or fails."""
    world = HeldWorld(seed)
    finish(ask(world))  # what is remembered of closed nodes is logged once
    called: list[Reservation] = []
    world.state.ledger.follow(lambda reservation, _sign: called.append(reservation))
    before = snapshot(world.state)
    for _ in stepping(ask(world)):
        assert snapshot(world.state) == before
    steps = ask(world)
    for number, _ in enumerate(stepping(steps)):
        if number == seed % 5:
            with pytest.raises(LookupError):
                steps.throw(LookupError)
    assert snapshot(world.state) == before
    assert not called


def stepping(steps: Steps[object]) -> Iterator[None]:
    """Iterate over the ends of all steps."""
    yield from steps
    yield


def world_without(seed: int, uids: frozenset[str]) -> HeldWorld:
    """Return the same world, in which some reservations of holds have really been released."""
    world = HeldWorld(seed)
    for hold in world.state.holds:
        if hold.reservation in uids:
            world.state.holds.release(hold.uid)
    return world


@settings(max_examples=repetitions(30, 200), deadline=None)
@given(SEEDS)
@example(445)  # what is held is the node's scarce CPU
@example(859)
def test_lifted_holds_give_what_released_ones_give(seed: int) -> None:
    """The pod gets the same cards of the same node, and the explanation has the same scores and reasons."""
    world = HeldWorld(seed)
    own, lower = lifts.own(world.state, world.asks), lifts.lower(world.state, world.asks)
    attempt = finish(cycle_of(world.state).dry_run(world.asks))
    requirements = world.requirements
    if requirements is None or attempt.evaluation is None or world.asks.spec.volumes:
        return
    for lift in (own, own | lower):
        real = world_without(seed, lift)
        expected = finish(evaluation.evaluate(real.state, real.asks, requirements, real.headroom()))
        if expected.scores:
            break
    else:
        real = world_without(seed, own)
        expected = finish(evaluation.evaluate(real.state, real.asks, requirements, real.headroom()))
    assert attempt.evaluation.scores == expected.scores
    others = dict.fromkeys(expected.others, expected.rejection_of_others)
    assert attempt.evaluation.rejections == expected.rejections | others
    assert attempt.evaluation.nodes == expected.nodes
    assert isinstance(attempt.result, Scheduled) == bool(expected.scores)
    if isinstance(attempt.result, Scheduled) and requirements.request:
        assert attempt.result.charges == expected.charges


@settings(max_examples=repetitions(30, 200), deadline=None)
@given(SEEDS)
def test_what_is_lifted_is_reserved_in_the_same_step(seed: int) -> None:
    """The loop and `/bind` reserve what the dry run says; higher holds stay, and no card that is held is exceeded."""
    planned = finish(cycle_of(HeldWorld(seed).state).dry_run(HeldWorld(seed).asks)).result
    world = HeldWorld(seed)
    state, cycle = world.state, cycle_of(world.state)
    higher = {hold.uid for hold in state.holds} - {world.asks.uid}
    higher -= {hold.uid for hold in state.holds if hold.reservation in lifts.lower(state, world.asks)}
    result = finish(cycle.schedule(world.asks))
    assert isinstance(result, Scheduled) == isinstance(planned, Scheduled)
    assert higher <= {hold.uid for hold in state.holds}
    if not isinstance(result, Scheduled) or not isinstance(planned, Scheduled):
        return
    assert (result.node, result.charges) == (planned.node, planned.charges)
    assert state.holds.of(world.asks.uid) is None
    other = HeldWorld(seed)
    on_node = cycle_of(other.state).reserve_on(other.asks, result.node)
    assert isinstance(on_node, Scheduled)
    for each, reserved in ((state, result), (other.state, on_node)):
        each.ledger.release(world.asks.uid)
        each.ledger.check(result.node, reserved.charges)


@settings(max_examples=repetitions(30, 200), deadline=None)
@given(SEEDS)
def test_victims_left_out_give_what_deleted_ones_give(seed: int) -> None:
    """`/preempt` keeps a node where the pod fits once the victims of kube-scheduler are really gone."""
    world = HeldWorld(seed)
    if not isinstance(filtering.read(world.state, preempting(world).pod), GpuRequirements):
        return
    kept = finish(preemption.preempt(world.state, preempting(world), more=lambda *_: None)).victims
    for name, uids in world.victims().items():
        real = HeldWorld(seed)
        for uid in uids:
            real.state.drop_pod(real.state.running[uid])
        requirements = real.requirements
        assert requirements is not None
        rejected = real.state.rejected_nodes.lasting(requirements)
        fits = evaluation.evaluate_on(
            real.state.ledger, requirements, name, rejected_nodes=rejected, headroom=real.headroom()
        )
        assert (name in kept) == (name in fits.scores)


def happen(world: HeldWorld) -> None:
    """Change the cluster: a hold begins or ends, a pod comes or goes, or a node is reported again."""
    state, chance = world.state, world.chance
    match chance.choice(("hold", "release", "run", "end", "report")):
        case "hold":
            world.hold(world.pod(priority=chance.choice((0, 9))), chance.randint(0, 1))
        case "release":
            for hold in [*state.holds][:1]:
                state.release_hold(hold.uid)
        case "run":
            world.run(world.pod())
        case "end":
            for running in [*state.running.values()][:1]:
                state.drop_pod(running)
        case "report":
            state.agent_reports.set(world.status(chance.choice(world.nodes)))


@settings(max_examples=repetitions(40, 300), deadline=None)
@given(SEEDS)
@example(571)  # a hold on a card of which the pod takes an instance
@example(968)  # a MIG instance is free before one is planned
def test_a_lifted_hold_is_checked_again_after_changes_between_the_steps(seed: int) -> None:
    """What is reserved exceeds no card together with the holds that are left, and those of higher rank are left."""
    world = HeldWorld(seed)
    state = world.state
    steps = cycle_of(state).schedule(world.asks)
    while True:
        higher = {hold.uid for hold in state.holds if hold.reservation not in lifts.lower(state, world.asks)}
        try:
            next(steps)
        except StopIteration as end:
            result = end.value
            break
        for _ in range(world.chance.randint(0, 3)):
            happen(world)
    assert higher - {world.asks.uid} <= {hold.uid for hold in state.holds}
    if isinstance(result, Scheduled):
        assert state.holds.of(world.asks.uid) is None
        state.ledger.release(world.asks.uid)
        state.ledger.check(result.node, result.charges)
