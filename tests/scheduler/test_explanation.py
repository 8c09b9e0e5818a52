"""What is said of a decision is the decision: it comes true, adds up, and changes nothing."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.ledger import Ledger
from allocation.reasons import CardReason, summary
from scheduler.cycle import Chosen, Waiting, decide
from scheduler.explanation import MANY, explain
from scheduler.explanation_api import NodeExplanation
from scheduler.state import State
from tests.scheduler.builders import Clock, allocated, node, pod, state
from tests.scheduler.test_mig_wishes import report
from tests.scheduler.worlds import World

SEEDS, PODS = range(100), 6


def columns(ledger: Ledger) -> dict[str, Any]:
    """Answer all that a ledger knows."""
    return {
        "total": ledger.total.tolist(),
        "used": ledger.used.tolist(),
        "fullness": ledger.fullness.tolist(),
        "holdings": {node: sorted(map(repr, ledger.holdings(node))) for node in ledger.nodes},
    }


def everything(made: State) -> dict[str, Any]:
    """Answer all that a scheduler knows."""
    fleet, wishes = made.fleet, made.wishes
    return {
        "ledger": columns(made.ledger),
        "changes": made.ledger.changes.state,
        "tenants": {uid: (tenant.node, tenant.amounts, tenant.assumed) for uid, tenant in fleet._tenants.items()},
        "taken": {
            node: {key: amount for key, amount in taken.items() if amount} for node, taken in fleet._taken.items()
        },
        "quotas": {name: sorted(uids) for name, uids in made.quotas._pods.items() if uids},
        "wishes": {node: sorted(known) for node, known in wishes._open.items() if known},
        "queue": [(entry.pod.uid, entry.attempts, entry.cures, entry.ready_at, entry.told) for entry in made.queue],
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_foretold_is_what_the_loop_does(seed: int) -> None:
    """Node, cards and words, for 600 random pods on 100 random fleets, each decided after it was asked about."""
    world = World(seed)
    for _ in range(PODS):
        asks = world.pod()
        told = explain(world.state, asks)
        world.state.set_pod(asks)
        done = decide(world.state, asks)
        assert told.note == done.note
        if isinstance(done, Waiting):
            assert (told.outcome, told.node, told.shares) == ("waits" if done.cures else "held", "", ())
            world.state.drop_pod(asks)
            continue
        assert (told.outcome, told.node) == ("fits", done.node)
        given_out = done.allocation.containers if done.allocation is not None else {}
        assert [(share.container, share.uuid, share.memory_mib, share.cores) for share in told.shares] == [
            (name, share.uuid, share.memory_mib, share.cores) for name, shares in given_out.items() for share in shares
        ]


@pytest.mark.parametrize("seed", SEEDS)
def test_reasons_sum_to_the_cards_and_nodes(seed: int) -> None:
    """Each node is told once; one that cards reject has a reason for every card, and says the sums of these."""
    world = World(seed)
    for _ in range(PODS):
        asks = world.pod()
        told = explain(world.state, asks)
        if not told.nodes:
            assert told.outcome == "held"
            continue
        assert [node.name for node in told.nodes] == sorted(world.state.fleet._nodes)
        assert Counter(name for group in told.reasons for name in group.nodes) == Counter(
            node.name for node in told.nodes if not node.fits
        )
        for each in told.nodes:
            check_node(each)
        best = [node.name for node in told.nodes if node.chosen]
        assert best == ([told.node] if told.node else [])


def check_node(node: NodeExplanation) -> None:
    """Hold a node's reasons against its cards."""
    assert node.fits is not bool(node.reason)
    assert (node.score is not None) is node.fits
    verdicts = [[said.verdict for said in card.verdicts] for card in node.cards]
    if node.counts:
        assert sum(node.counts.values()) == len(node.cards)
        assert Counter(said for (said,) in verdicts) == node.counts
        counts = {CardReason[name]: count for name, count in node.counts.items()}
        assert node.reason == summary(counts, len(node.cards))
    for card in node.cards:
        for said in card.verdicts:
            assert said.verdict in CardReason.__members__
            assert not said.chosen or said.verdict == "FITS"


@pytest.mark.parametrize("seed", SEEDS)
def test_asking_changes_nothing(seed: int) -> None:
    """Ledger, fleet, quotas, wishes, queue and the log of changes are equal before and after."""
    world = World(seed)
    waiting = [world.pod() for _ in range(3)]
    for each in waiting:
        world.state.set_pod(each)
    explain(world.state, pod("first", memory=1))  # which nodes are closed is looked up once
    before = everything(world.state)
    for asks in (*waiting, world.pod(), world.pod()):
        explain(world.state, asks)
        assert everything(world.state) == before


@given(st.integers(0, 2**32))
def test_asking_does_not_lead_to_other_decisions(seed: int) -> None:
    """Of two schedulers with one history, the one that is asked between decisions makes the same ones."""
    quiet, asked = World(seed), World(seed)
    for _ in range(4):
        mine, theirs = quiet.pod(), asked.pod()
        for _ in range(2):
            explain(asked.state, theirs)
        decisions = decide(quiet.state, mine), decide(asked.state, theirs)
        # Who was asked before may have found the same by the shorter way.
        first, second = (msgspec.structs.replace(each, way="long") for each in decisions)
        assert first == second


def test_a_pod_that_fits_is_told_where_and_by_what() -> None:
    """A sentence for people, the policy, and the cards that were compared."""
    found = explain(state("n1", "n2"), pod("a", memory=600))
    assert found.answer == "would go to n1, card 0"
    assert found.policy is not None
    assert found.policy.nodes.startswith("binpack: the highest score first")
    (first, second) = found.nodes
    assert (first.chosen, second.chosen) == (True, False)
    assert [said.chosen for card in first.cards for said in card.verdicts] == [True, False]


def test_what_may_be_cured_is_told_apart() -> None:
    """A full card empties one day; a card that is too small does not grow."""
    made = state("n1", cards=1)
    made.set_pod(allocated("runs", node="n1", memory=700))
    for memory, curable in ((600, True), (5000, False)):
        found = explain(made, pod("a", memory=memory))
        assert found.outcome == "waits"
        assert [(group.reason, group.curable) for group in found.reasons] == [("1/1 CardInsufficientMemory", curable)]
        assert found.curable is curable


@pytest.mark.parametrize(("cpu", "curable"), [("60", True), ("65", False)])
def test_what_a_node_refuses_for_may_be_cured_where_others_are_in_the_way(cpu: str, curable: bool) -> None:  # noqa: FBT001
    """CPU that others have comes back; CPU that the node never had does not."""
    made = state("n1")
    made.set_pod(pod("runs", node="n1", phase="Running", containers=[{"resources": {"requests": {"cpu": "10"}}}]))
    limits = {"cpu": cpu, "nvidia.com/gpu": "1"}
    found = explain(made, pod("a", containers=[{"name": "main", "resources": {"limits": limits}}]))
    assert [(group.reason, group.curable) for group in found.reasons] == [("Insufficient cpu", curable)]


def test_the_cards_of_some_nodes_only() -> None:
    """A large fleet need not be told card by card."""
    found = explain(state("n1", "n2"), pod("a", memory=600), cards_of=("n2",))
    assert [len(node.cards) for node in found.nodes] == [0, 2]


def test_a_large_fleet_is_told_with_the_cards_of_the_chosen_node() -> None:
    """Unless others are named: telling all of them would keep the loop waiting."""
    made = state(*(f"n{number:03}" for number in range(MANY + 1)))
    found = explain(made, pod("a", memory=600))
    assert [node.name for node in found.nodes if node.cards] == ["n000"]
    assert len(found.nodes) == MANY + 1
    found = explain(made, pod("a", memory=600), cards_of=("n007",))
    assert [node.name for node in found.nodes if node.cards] == ["n007"]


def test_pods_that_are_not_to_be_decided() -> None:
    """Bound, being bound, finished, gated, somebody else's: each is told what it is."""
    made = state("n1")
    asks = pod("a", memory=600)
    made.set_pod(asks)
    assert isinstance(decide(made, asks), Chosen)
    for each, outcome, said in (
        (asks, "binding", "is being bound to n1, card 0"),
        (allocated("b", node="n1", memory=100, card=1), "bound", "is bound to n1, card 1; its environment"),
        (pod("c", memory=100, node="n1"), "bound", "was bound to n1 uncounted"),
        (pod("d", node="n1"), "bound", "is bound to n1; it asks for no GPU"),
        (pod("e", memory=100, node="n1", phase="Succeeded"), "finished", "is finished (Succeeded)"),
        (pod("f", deleted="2026-01-01T00:00:00Z"), "finished", "is being deleted"),
        (pod("g", schedulerName="other"), "foreign", "is not ours to place: its schedulerName is other"),
        (pod("h", schedulingGates=[{"name": "x"}]), "gated", "waits for its scheduling gates"),
        (pod("i", resourceClaims=[{}]), "held", "held: spec.resourceClaims is not evaluated"),
    ):
        found = explain(made, each)
        assert (found.outcome, found.answer[: len(said)]) == (outcome, said)


async def test_where_a_pod_waits() -> None:
    """How often it was tried, since when it waits, until when it pauses, and for what."""
    clock = Clock()
    made = state("n1", clock=clock)
    asks = pod("a", memory=5000)
    made.set_pod(asks)
    assert msgspec.structs.asdict(explain(made, asks).queue)["place"] == "active"  # type: ignore[arg-type]
    clock.now += 3
    entry = await made.queue.pop()
    decision = decide(made, asks)
    assert isinstance(decision, Waiting)
    made.queue.fail(entry, decision.cures)
    clock.now += 0.25
    standing = explain(made, asks).queue
    assert standing is not None
    assert msgspec.structs.astuple(standing) == ("waiting", 1, 3.25, 0.75, ("capacity", "node"))
    made.queue.wake(decision.cures)
    standing = explain(made, asks).queue
    assert standing is not None
    assert standing.place == "backing off"


def test_mig_instances_are_foretold_and_not_asked_for() -> None:
    """A pod that an agent could make an instance for is told so; no agent is asked until the loop decides."""
    made = state()
    made.set_node(node("n0"))
    made.set_status(report())
    found = explain(made, pod("a", memory=100))
    assert found.answer == "waits: no free MIG instance fits; asked node(n0) to make 1g.5gb on card GPU-n0-0"
    assert made.wishes.due() == []


def test_in_extender_mode_the_queue_is_not_ours() -> None:
    """What only the loop does is not foretold: making instances, holding pods for fields that it does not evaluate."""
    made = state("n1", has_queue=False)
    found = explain(made, pod("a", memory=600, resourceClaims=[{}]))
    assert (found.outcome, found.node, found.queue) == ("fits", "n1", None)
    made = state(has_queue=False)
    made.set_node(node("n0"))
    made.set_status(report())
    assert explain(made, pod("a", memory=100)).note.startswith("no available node")
