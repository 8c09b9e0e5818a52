"""The evaluation of nodes and cards that an explanation shows for a pod of an application is that of the decision."""

import random
from collections import Counter

import pytest

from allocation.allocation import Allocation, CardShare
from allocation.names import ALLOCATION, CARD_POLICY
from allocation.steps import finish
from allocation.wire.record import encode
from scheduler.api.explanation_types import CardExplanation, Explanation, NodeExplanation
from scheduler.cycle.result import Scheduled, Unschedulable
from tests.allocation.support import machines
from tests.scheduler.api.test_bindings_explanation import consumer, site
from tests.scheduler.support.app_pods import app_labels, app_pod, gpu_binding, settings
from tests.scheduler.support.builders import allocated, node, state
from tests.scheduler.support.claims import claiming, running
from tests.scheduler.support.connecting import set_of, status, wanted
from tests.scheduler.support.explaining import explained
from tests.scheduler.support.scheduling import schedule
from tests.support.cases import case
from tests.support.depth import repetitions

SEEDS = repetitions(60, 150)


def verdicts(shown: NodeExplanation) -> list[tuple[str, bool]]:
    """Return the verdict on each card, and whether it is chosen."""
    return [(each.verdict, each.chosen) for card in shown.cards for each in card.verdicts]


@pytest.mark.parametrize("policy", ["all", "single"])
@pytest.mark.parametrize("mode", ["0", "1", "2"])
def test_the_verdicts_on_bound_cards_agree_with_the_decision(policy: str, mode: str) -> None:
    """What a card must have free is what the binding and the share mode say, and cards of others do not fit."""
    made = site(
        gpu_binding("first", "GPU-n1-0", memory="400"), gpu_binding("second", "GPU-n1-1", memory="400"), c0=mode, c1="2"
    )
    made.set_pod(allocated("neighbour", node="n1", card=0, memory=700))
    waiting = app_pod("a", policy=policy, memory=100)
    shown = explained(made, waiting)
    first, second = shown.nodes
    made.set_pod(waiting)
    decision = finish(schedule(made, waiting))
    fits_first = mode == "2"  # 300 MiB are left, which are too few for 400 MiB and for the whole card
    if policy == "all" and not fits_first:
        assert isinstance(decision, Unschedulable)
        assert shown.outcome == "waits"
        assert shown.note == decision.note
        refused = "ExclusiveDeviceAllocateConflict" if mode == "0" else "CardInsufficientMemory"
        assert verdicts(first) == [(refused, False), ("AllocatedCardsInsufficientRequest", False)]
    else:
        assert isinstance(decision, Scheduled)
        assert decision.allocation is not None
        given = decision.allocation.containers["main"]
        assert [share.uuid for share in shown.shares] == [share.uuid for share in given]
        judged = verdicts(first)
        assert [verdict == "FITS" for verdict, _ in judged] == [fits_first, True]
        assert [f"GPU-n1-{card}" for card, (_, chosen) in enumerate(judged) if chosen] == [each.uuid for each in given]
        assert len(given) == (2 if policy == "all" else 1)
    assert (second.code, second.cards[0].verdicts) == ("NodeNotBound", ())


def test_explanations_of_bound_pods_predict_the_decision() -> None:
    """The node, the cards or the reasons; the verdicts on cards are those that the node's reason counts."""
    for seed in range(SEEDS):
        with case(seed=seed):
            chance = random.Random(seed)  # noqa: S311 -- not a secret
            made = site(cards=3, **{f"c{card}": chance.choice("012") for card in range(3)})
            uuids = [f"GPU-{name}-{card}" for name in ("n1", "n2") for card in range(3)]
            for number, uuid in enumerate(chance.sample(uuids, chance.randint(1, 5))):
                memory = chance.choice((None, "300", "800", "1200"))
                made.bindings.set(gpu_binding(f"b-{number}", uuid, memory=memory))
            for number in range(chance.randint(0, 3)):
                labels = app_labels() if chance.random() < 0.3 else {}
                where = {"node": chance.choice(("n1", "n2")), "card": chance.randrange(3)}
                made.set_pod(allocated(f"p-{number}", memory=chance.choice((10, 500)), labels=labels, **where))
            limits = {"nvidia.com/gpu": str(chance.randint(1, 2)), "nvidia.com/gpumem": chance.choice(("100", "900"))}
            containers = [{"name": "main", "resources": {"limits": limits, "requests": limits}}]
            waiting = app_pod("a", policy=chance.choice(("all", "single")), containers=containers)
            shown = explained(made, waiting)
            for each in shown.nodes:
                judged = [verdict for verdict, _ in verdicts(each)]
                assert judged.count("FITS") >= sum(chosen for _, chosen in verdicts(each))
                if not each.fits and not each.code:
                    assert dict(Counter(judged)) == each.counts
            made.set_pod(waiting)
            decision = finish(schedule(made, waiting))
            assert decision is not None
            assert decision.note == shown.note
            if isinstance(decision, Scheduled):
                assert decision.allocation is not None
                chosen = [card.uuid for card in chosen_cards(shown)]
                assert [share.uuid for share in shown.shares] == chosen
                assert [share.uuid for share in decision.allocation.containers["main"]] == chosen


def chosen_cards(shown: Explanation) -> list[CardExplanation]:
    """Return the cards that the pod would get, by the verdicts on them."""
    (node,) = (each for each in shown.nodes if each.chosen)
    return [card for card in node.cards if any(each.chosen for each in card.verdicts)]


def test_cards_that_are_not_bound_do_not_fit() -> None:
    """Also on the node of the bound ones."""
    shown = explained(site(gpu_binding("b", "GPU-n1-1")), app_pod("a"))
    assert verdicts(shown.nodes[0]) == [("CardUuidMismatch", False), ("FITS", True)]


def test_a_node_whose_bound_cards_are_in_use_names_the_pods() -> None:
    """Waiting helps, and the cards have no verdicts: they were not evaluated one by one."""
    made = site(gpu_binding("b", "GPU-n1-0"))
    made.set_pod(consumer("runs", 0, owner=""))
    shown = explained(made, app_pod("a"))
    assert (shown.outcome, shown.resolvable) == ("waits", True)
    assert [node.code for node in shown.nodes] == ["InsufficientGPU", "NodeNotBound"]
    assert "GPU-n1-0 (pod default/runs)" in shown.nodes[0].reason
    assert verdicts(shown.nodes[0]) == []
    assert shown.bindings is not None
    assert [card.consumed_by for card in shown.bindings.cards] == [("default/runs",)]


def test_the_rules_are_those_of_bindings() -> None:
    """With policy all the cards decide, not the score of the node."""
    made = site(gpu_binding("b", "GPU-n1-0"))
    everywhere, one = explained(made, app_pod("a")).policy, explained(made, app_pod("a", policy="single")).policy
    assert everywhere is not None
    assert one is not None
    assert everywhere.nodes == "policy all: the first by name whose cards bound to the application are all left"
    assert one.nodes.startswith("binpack: the highest score first")


def test_a_better_set_of_cards_is_one_of_bound_cards() -> None:
    """Of a running pod, too: it could not have got the fast cards of others."""
    made = state(settings=settings("labelled"))
    made.set_node(node("n1"))
    made.agent_reports.set(status("n1", machines.example_node()))  # cards 0 to 3 are fast, 4 to 7 slow
    made.set_claim(quad := wanted(4))
    labels = app_labels()
    for index in (0, 4, 5, 6, 7):
        made.bindings.set(gpu_binding(f"b-{index}", f"GPU-n1-{index}"))
    waits = set_of(explained(made, claiming("waits", quad, labels=labels)))
    made.set_pod(runs := running("runs", quad, node="n1", cards=range(4, 8), labels=labels))
    (has,) = explained(made, runs).topology
    for shown in (waits, has):
        assert (shown.chosen is not None, shown.better) == (True, None)
        assert shown.text.startswith("cards 4-7: ")
    free = explained(made, claiming("free", quad))
    assert [share.index for share in free.shares] == [0, 1, 2, 3]


def test_a_running_pod_that_got_all_bound_cards_is_explained_by_all_of_them() -> None:
    """It requests one."""
    made = state(settings=settings("labelled"))
    made.set_node(node("n1"))
    made.agent_reports.set(status("n1", machines.example_node()))
    for index in range(3):
        made.bindings.set(gpu_binding(f"b-{index}", f"GPU-n1-{index}"))
    shares = tuple(CardShare(f"GPU-n1-{index}", index, 100, 0) for index in range(3))
    annotations = {ALLOCATION: encode(Allocation("n1", {"main": shares})), CARD_POLICY: "topology-aware"}
    made.set_pod(runs := app_pod("a", node="n1", phase="Running", annotations=annotations))
    (shown,) = explained(made, runs).topology
    assert shown.request.cards == 3
    assert shown.text.startswith("cards 0-2: ")
