"""Explanations predict the decision of the loop, are complete, and change no state."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.ledger.ledger import Ledger
from allocation.reasons import CardReason, summary
from allocation.steps import finish
from scheduler.api.explanation import MANY
from scheduler.api.explanation_types import NodeExplanation
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.queue.entry import Rejected
from scheduler.queue.queueing_hints import ClusterEvent
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.mig.test_requests import report
from tests.scheduler.support.builders import Clock, allocated, node, pod, state
from tests.scheduler.support.claiming_world import ClaimingWorld
from tests.scheduler.support.explaining import explained
from tests.scheduler.support.preferring import PREFERRED, PreferringWorld, in_
from tests.scheduler.support.scheduling import schedule
from tests.scheduler.support.worlds import World
from tests.support.cases import case
from tests.support.depth import repetitions

SEEDS, PODS = range(repetitions(40, 100)), 6


def columns(ledger: Ledger) -> dict[str, Any]:
    """Return the complete state of a ledger."""
    return {
        "total": ledger.total.tolist(),
        "used": ledger.used.tolist(),
        "fullness": ledger.fullness.tolist(),
        "places": ledger.pods.tolist(),
        "locks": ledger.isolation.locks.tolist(),
        "reservations": {node: sorted(map(repr, ledger.reservations(node))) for node in ledger.nodes},
    }


def everything(made: ClusterState) -> dict[str, Any]:
    """Return the complete state of a scheduler."""
    fleet, requests, claims = made.node_cache, made.instance_requests, made.claims
    return {
        "ledger": columns(made.ledger),
        "changes": made.ledger.changes.state,
        "pods": {uid: (info.node, info.amounts, info.assumed) for uid, info in fleet._pods.items()},
        "used": {node: {key: amount for key, amount in used.items() if amount} for node, used in fleet._used.items()},
        "use": [
            (dict(use._pods), {owner: repr(held) for owner, held in use._uses.items()})
            for use in (made.quotas.counted, made.fair_share.use)
        ],
        "mig requests": {node: sorted(opened) for node, opened in requests._open.items() if opened},
        "claims": {name: (claim.spec, claim.status) for name, claim in claims._claims.items()},
        "claim users": {name: sorted(map(repr, users.values())) for name, users in claims._users.items() if users},
        "claim statuses": dict(claims.statuses._due),
        "queue": [
            (entry.pod.uid, entry.attempts, entry.reasons, entry.ready_at, entry.published) for entry in made.queue
        ],
    }


@pytest.mark.parametrize("kind", [World, PreferringWorld, ClaimingWorld])
def test_an_explanation_predicts_the_decision_of_the_loop(kind: type[World]) -> None:
    """Node, cards and texts, for random pods on random fleets of each kind, before they are scheduled."""
    for seed in SEEDS:
        with case(seed=seed):
            world = kind(seed)
            for _ in range(PODS):
                pending = world.pod()
                explanation = explained(world.state, pending)
                world.state.set_pod(pending)
                decision = finish(schedule(world.state, pending))
                assert explanation.note == decision.note
                if isinstance(decision, Unschedulable):
                    outcome = "waits" if not decision.is_held else "held"
                    assert (explanation.outcome, explanation.node, explanation.shares) == (outcome, "", ())
                    world.state.drop_pod(pending)
                    continue
                assert (explanation.outcome, explanation.node) == ("fits", decision.node)
                allocated = decision.allocation.containers if decision.allocation is not None else {}
                assert [
                    (share.container, share.uuid, share.memory_mib, share.cores) for share in explanation.shares
                ] == [
                    (name, share.uuid, share.memory_mib, share.cores)
                    for name, shares in allocated.items()
                    for share in shares
                ]


def test_reasons_sum_to_the_cards_and_nodes() -> None:
    """Each node appears once; a node whose cards reject the pod has a reason for each card, and their sums."""
    for seed in SEEDS:
        with case(seed=seed):
            world = World(seed)
            for _ in range(PODS):
                explanation = explained(world.state, world.pod())
                if not explanation.nodes:
                    assert explanation.outcome == "held"
                    continue
                assert [node.name for node in explanation.nodes] == sorted(world.state.node_cache.nodes)
                assert Counter(name for group in explanation.reasons for name in group.nodes) == Counter(
                    node.name for node in explanation.nodes if not node.fits
                )
                for each in explanation.nodes:
                    check_node(each)
                chosen = [node.name for node in explanation.nodes if node.chosen]
                assert chosen == ([explanation.node] if explanation.node else [])


def check_node(node: NodeExplanation) -> None:
    """Compare the reasons of a node with its cards."""
    assert node.fits is not bool(node.reason)
    assert (node.score is not None) is node.fits
    verdicts = [[each.verdict for each in card.verdicts] for card in node.cards]
    if node.counts:
        assert sum(node.counts.values()) == len(node.cards)
        assert Counter(verdict for (verdict,) in verdicts) == node.counts
        counts = {CardReason[name]: count for name, count in node.counts.items()}
        assert node.reason == summary(counts, len(node.cards))
    for card in node.cards:
        for each in card.verdicts:
            assert each.verdict in CardReason.__members__
            assert not each.chosen or each.verdict == "FITS"


@pytest.mark.parametrize("kind", [World, ClaimingWorld])
def test_explaining_changes_no_state(kind: type[World]) -> None:
    """Ledger, node cache, quotas, MIG requests, claims, queue and the log of changes are equal before and after."""
    for seed in SEEDS:
        with case(seed=seed):
            world = kind(seed)
            waiting = [world.pod() for _ in range(3)]
            for each in waiting:
                world.state.set_pod(each)
            explained(world.state, pod("first", memory=1))  # this caches the closed nodes
            before = everything(world.state)
            for each in (*waiting, world.pod(), world.pod()):
                explained(world.state, each)
                assert everything(world.state) == before


@given(st.integers(0, 2**32))
def test_explaining_does_not_change_later_decisions(seed: int) -> None:
    """Two schedulers with the same history decide alike, although one explains pods between its decisions."""
    plain, explaining = World(seed), World(seed)
    for _ in range(4):
        first, second = plain.pod(), explaining.pod()
        for _ in range(2):
            explained(explaining.state, second)
        decisions = finish(schedule(plain.state, first)), finish(schedule(explaining.state, second))
        # After an explanation the decision may take a shorter path.
        expected, actual = (msgspec.structs.replace(each, path="full") for each in decisions)
        assert actual == expected


def test_a_fitting_pod_is_explained_with_node_cards_and_policy() -> None:
    """The explanation has a sentence, the policy, and the verdicts of the cards."""
    explanation = explained(state("n1", "n2"), pod("a", memory=600))
    assert explanation.answer == "would go to n1, card 0"
    assert explanation.policy is not None
    first_rule = "the fewest cards left without CPU or memory"
    assert explanation.policy.nodes.startswith(f"{first_rule}, then binpack: the highest score first")
    (first, second) = explanation.nodes
    assert (first.chosen, second.chosen) == (True, False)
    assert [each.chosen for card in first.cards for each in card.verdicts] == [True, False]


@pytest.mark.parametrize(
    ("stranded", "rules"),
    [
        (300.0, "the fewest cards left without CPU or memory, then the least free CPU; ties are broken by name"),
        (0.0, "the node with the fewest pods; ties are broken by name"),
    ],
)
def test_the_rules_for_a_pod_without_cards_are_those_of_the_weight(stranded: float, rules: str) -> None:
    """And the rules for cards, which then begin with the score."""
    made = state("n1", stranded=stranded)
    without, with_card = explained(made, pod("a")).policy, explained(made, pod("b", memory=600)).policy
    assert without is not None
    assert with_card is not None
    assert without.nodes == f"it asks for no GPU: {rules}"
    assert with_card.nodes.startswith("binpack") == (not stranded)


def test_the_scores_of_a_pod_with_preferences_have_parts() -> None:
    """Their weighted sum is the score of the node, in the note as well; a pod without preferences has no parts."""
    preference = {"nodeAffinity": {PREFERRED: [in_("kubernetes.io/hostname", "n2", weight=7)]}}
    explanation = explained(state("n1", "n2"), pod("a", memory=600, affinity=preference))
    assert [node.scores for node in explanation.nodes] == [
        {"cards": 100.0, "node_affinity": 0.0},
        {"cards": 100.0, "node_affinity": 100.0},
    ]
    assert [node.score for node in explanation.nodes] == [10000.0, 10200.0]
    assert "fit(n2:10200.00,n1:10000.00)" in explanation.note
    assert explanation.policy is not None
    assert explanation.policy.nodes.startswith("the highest total of cards and preferences by scheduler.weights")
    assert [node.scores for node in explained(state("n1"), pod("a", memory=600)).nodes] == [{}]


def test_resolvable_rejections_are_marked() -> None:
    """Pods on a full card finish; a card that is too small stays too small."""
    made = state("n1", cards=1)
    made.set_pod(allocated("runs", node="n1", memory=700))
    for memory, resolvable in ((600, True), (5000, False)):
        explanation = explained(made, pod("a", memory=memory))
        assert explanation.outcome == "waits"
        assert [(group.reason, group.resolvable) for group in explanation.reasons] == [
            ("1/1 CardInsufficientMemory", resolvable)
        ]
        assert explanation.resolvable is resolvable


@pytest.mark.parametrize(("cpu", "resolvable"), [("60", True), ("65", False)])
def test_a_node_rejection_is_resolvable_if_other_pods_use_the_resource(cpu: str, resolvable: bool) -> None:  # noqa: FBT001
    """Pods that use CPU finish; a node that is too small stays too small."""
    made = state("n1")
    made.set_pod(pod("runs", node="n1", phase="Running", containers=[{"resources": {"requests": {"cpu": "10"}}}]))
    limits = {"cpu": cpu, "nvidia.com/gpu": "1"}
    explanation = explained(made, pod("a", containers=[{"name": "main", "resources": {"limits": limits}}]))
    assert [(group.reason, group.resolvable) for group in explanation.reasons] == [
        ("NodeInsufficientResource: Insufficient cpu", resolvable)
    ]


def test_cards_are_limited_to_the_requested_nodes() -> None:
    """An explanation of a large fleet need not contain each card."""
    explanation = explained(state("n1", "n2"), pod("a", memory=600), cards_of=("n2",))
    assert [len(node.cards) for node in explanation.nodes] == [0, 2]


def test_a_large_fleet_is_explained_with_the_cards_of_the_chosen_node() -> None:
    """Other nodes can be requested; the cards of all nodes would delay the scheduling loop."""
    made = state(*(f"n{number:03}" for number in range(MANY + 1)))
    explanation = explained(made, pod("a", memory=600))
    assert [node.name for node in explanation.nodes if node.cards] == ["n000"]
    assert len(explanation.nodes) == MANY + 1
    explanation = explained(made, pod("a", memory=600), cards_of=("n007",))
    assert [node.name for node in explanation.nodes if node.cards] == ["n007"]


def gates(*named: str) -> list[dict[str, str]]:
    """Return the scheduling gates of a pod."""
    return [{"name": name} for name in named]


def test_pods_that_need_no_decision_are_explained_by_their_state() -> None:
    """The pods are bound, being bound, finished, gated, held, or another scheduler's."""
    made = state("n1")
    assumed = pod("a", memory=600)
    made.set_pod(assumed)
    assert isinstance(finish(schedule(made, assumed)), Scheduled)
    for each, outcome, text in (
        (assumed, "binding", "is being bound to n1, card 0"),
        (allocated("b", node="n1", memory=100, card=1), "bound", "is bound to n1, card 1; its environment"),
        (pod("c", memory=100, node="n1"), "bound", "runs uncounted on n1"),
        (pod("d", node="n1"), "bound", "is bound to n1; it asks for no GPU"),
        (pod("e", memory=100, node="n1", phase="Succeeded"), "finished", "is finished (Succeeded)"),
        (pod("f", deleted="2026-01-01T00:00:00Z"), "finished", "is being deleted"),
        (pod("g", schedulerName="other"), "foreign", "is left to another scheduler: its schedulerName is other"),
        (pod("h", schedulingGates=gates("a.io/x", "y")), "gated", "waits for its scheduling gates a.io/x, y: the user"),
        (
            pod("k", schedulingGates=gates(*"abcdefghij")),
            "gated",
            "waits for its scheduling gates a, b, c, d, e, f, g, h, …",
        ),
        (pod("i", resourceClaims=[{}]), "held", "PodHeld: spec.resourceClaims is not evaluated"),
    ):
        explanation = explained(made, each)
        assert (explanation.outcome, explanation.answer[: len(text)]) == (outcome, text)


async def test_explanation_has_the_position_in_the_queue() -> None:
    """The position has attempts, waiting time, remaining pause, and the events that it waits for."""
    clock = Clock()
    made = state("n1", clock=clock)
    waiting = pod("a", memory=5000)
    made.set_pod(waiting)
    assert msgspec.structs.asdict(explained(made, waiting).queue)["place"] == "active"  # type: ignore[arg-type]
    clock.now += 3
    entry = await made.queue.pop()
    decision = finish(schedule(made, waiting))
    assert isinstance(decision, Unschedulable)
    made.queue.add_unschedulable(entry, Rejected(decision.note, decision.reasons))  # of no kind known to fit nowhere
    clock.now += 0.25
    position = explained(made, waiting).queue
    assert position is not None
    assert msgspec.structs.astuple(position) == ("unschedulable", 1, 3.25, 0.0, ("pod_removed", "cards_changed"))
    made.queue.notify(ClusterEvent.POD_REMOVED)
    made.queue.requeue((await made.queue.pop()).pod.uid)
    position = explained(made, waiting).queue
    assert position is not None
    assert (position.place, position.pause_seconds) == ("backoff", 2.0)


def test_mig_instances_are_predicted_and_not_requested() -> None:
    """The explanation names the instance that an agent could create; only the loop requests it."""
    made = state()
    made.set_node(node("n0"))
    made.agent_reports.set(report())
    explanation = explained(made, pod("a", memory=100))
    assert (
        explanation.answer
        == "waits: MigInstanceAsked: no free MIG instance fits; asked node(n0) to make 1g.5gb on card GPU-n0-0"
    )
    assert made.instance_requests.due() == []


def test_extender_mode_has_no_queue_and_requests_no_instances() -> None:
    """Only the loop requests instances, and holds pods with fields that it does not evaluate."""
    made = state("n1", has_queue=False)
    explanation = explained(made, pod("a", memory=600, resourceClaims=[{}]))
    assert (explanation.outcome, explanation.node, explanation.queue) == ("fits", "n1", None)
    made = state(has_queue=False)
    made.set_node(node("n0"))
    made.agent_reports.set(report())
    assert explained(made, pod("a", memory=100)).note.startswith("no available node")
