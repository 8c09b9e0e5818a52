"""Pods of one gang gather in few network blocks; no other pod is concerned."""

import pytest

from allocation.steps import finish
from cluster.gpu_claim import GpuClaim
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import Scheduled
from scheduler.objects import Node, Pod
from scheduler.scoring import network_blocks
from scheduler.scoring.node_scorer import NodeScorer
from scheduler.settings import NO_PREFERENCES, ScoreWeights
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import allocated, pod, state, status
from tests.scheduler.support.claims import claim, claiming
from tests.scheduler.support.claims import running as claimed_and_running
from tests.scheduler.support.gangs import in_blocks, of_gang
from tests.scheduler.support.preferring import everywhere, listed
from tests.scheduler.support.scheduling import cycle_of, forget, schedule
from tests.scheduler.support.worlds import bound

MEMBER = of_gang(claim("member", exclusivity="Shared", memoryMiB=100), "training")
SPREAD = {"hami.io/node-scheduler-policy": "spread"}
TWO_BLOCKS = tuple(in_blocks(name, zone="z", clique=clique) for name, clique in zip("abcd", "1122", strict=True))


def cluster(*nodes: Node, claims: tuple[GpuClaim, ...] = (MEMBER,)) -> ClusterState:
    """Return a scheduler with these nodes, each with two cards of 1000 MiB."""
    made = state()
    for each in nodes:
        made.set_node(each)
        made.agent_reports.set(status(each.metadata.name))
    for given in claims:
        made.set_claim(given)
    return made


def member(name: str, given: GpuClaim = MEMBER, **more: object) -> Pod:
    """Return a pod of the gang, which the policy of nodes would keep apart from others."""
    return claiming(name, given, annotations=SPREAD, **more)


def running(name: str, node: str, given: GpuClaim = MEMBER) -> Pod:
    """Return a pod of the gang that has a node."""
    return claimed_and_running(name, given, node=node)


def placed(made: ClusterState, pending: Pod) -> str:
    """Schedule a pod and return its node."""
    made.set_pod(pending)
    result = finish(schedule(made, pending))
    assert isinstance(result, Scheduled), result
    made.set_pod(bound(pending, result), pending)
    return result.node


def scores(made: ClusterState, pending: Pod | None = None) -> list[int]:
    """Return the scores of all nodes for a pod of the gang."""
    cache = made.node_cache
    return listed(network_blocks.scores(pending or member("p"), everywhere(cache), cache.gangs, cache.network))


def test_pods_of_a_gang_go_to_one_block_although_cards_prefer_others() -> None:
    """The policy is spread: by the cards alone each pod goes to an empty node, of whatever block."""
    made = cluster(*TWO_BLOCKS)
    assert [placed(made, member(f"p{number}")) for number in range(4)] == ["a", "b", "a", "b"]
    unweighted, cards = cluster(*TWO_BLOCKS), ScoreWeights(network_blocks=0)
    for number, expected in enumerate("abcd"):
        found = finish(SchedulingCycle(unweighted, weights=cards).dry_run(member(f"p{number}"))).result
        assert isinstance(found, Scheduled)
        assert found.node == expected
        unweighted.set_pod(bound(member(f"p{number}"), found))


def test_a_gang_whose_block_is_full_goes_on_in_the_same_zone() -> None:
    """Cards are preferred to a wider block no more than to a narrower one."""
    other = in_blocks("other", zone="y", clique="9")
    made = cluster(other, *TWO_BLOCKS)
    made.set_pod(running("r", "a"))
    for name in "ab":
        for card in (0, 1):
            made.set_pod(allocated(f"x{name}{card}", node=name, memory=850, card=card))
    made.set_pod(allocated("y", node="c", memory=500))
    made.set_pod(allocated("z", node="d", memory=500))
    big = of_gang(claim("big", exclusivity="Shared", memoryMiB=400), "training")
    made.set_claim(big)
    assert placed(made, member("p", big)) == "c"


def test_pods_without_a_gang_go_where_the_cards_are_best() -> None:
    """Neither a pod without a claim, nor one whose claim names no gang or another one."""
    made = cluster(*TWO_BLOCKS, claims=(MEMBER, alone := claim("alone"), of_gang(claim("theirs"), "inference")))
    made.set_pod(running("r", "a"))
    scorer = NodeScorer(made.node_cache, ScoreWeights())
    assert scorer.preferences(member("m")) == ("network_blocks",)
    theirs = of_gang(claim("theirs"), "inference")
    for other in (pod("p", memory=100), member("q", alone), member("s", theirs), member("t", claim("missing"))):
        assert scorer.preferences(other) == ()
    assert placed(made, pod("p", memory=100, annotations=SPREAD)) == "b"
    assert placed(made, pod("q", memory=100, annotations=SPREAD)) == "c"


def test_in_extender_mode_and_without_its_claim_a_pod_has_no_gang() -> None:
    """There kube-scheduler follows preferences; and what a deleted claim said is unknown after a restart."""
    made = cluster(*TWO_BLOCKS)
    made.set_pod(running("r", "a"))
    assert NodeScorer(made.node_cache, NO_PREFERENCES).preferences(member("p")) == ()
    scorer = NodeScorer(made.node_cache, ScoreWeights())
    assert scorer.preferences(member("p")) == ("network_blocks",)
    made.drop_claim(MEMBER)
    assert scorer.preferences(member("p")) == ()
    made.set_claim(MEMBER)
    assert scorer.preferences(member("p")) == ("network_blocks",)


def test_a_gang_without_nodes_or_a_cluster_without_blocks_has_no_preference() -> None:
    """The first pod goes where the cards are best."""
    made = cluster(*TWO_BLOCKS)
    scorer = NodeScorer(made.node_cache, ScoreWeights())
    assert scorer.preferences(member("p")) == ()
    unlabelled = cluster(in_blocks("a"), in_blocks("b"))
    unlabelled.set_pod(running("r", "a"))
    assert NodeScorer(unlabelled.node_cache, ScoreWeights()).preferences(member("p")) == ()


def test_assumed_pods_count_and_forgotten_ones_do_not() -> None:
    """As soon as a node is reserved, the next pod knows it."""
    made, pending = cluster(*TWO_BLOCKS), member("p")
    made.set_pod(pending)
    assert isinstance(finish(schedule(made, pending)), Scheduled)
    assert NodeScorer(made.node_cache, ScoreWeights()).preferences(member("q")) == ("network_blocks",)
    forget(made, pending)
    assert NodeScorer(made.node_cache, ScoreWeights()).preferences(member("q")) == ()


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ("a", [100, 100, 50, 25, 0, 0]),
        ("aab", [100, 100, 50, 25, 0, 0]),
        ("ac", [100, 100, 100, 50, 0, 0]),
        ("aac", [100, 100, 50, 25, 0, 0]),
        ("accd", [50, 50, 100, 25, 0, 0]),
        ("addd", [100, 100, 25, 50, 0, 0]),
        ("e", [0, 0, 0, 0, 100, 0]),
        ("f", [0, 0, 0, 0, 0, 0]),
    ],
)
def test_more_pods_in_the_narrowest_block_are_better_and_wider_blocks_less(pods: str, expected: list[int]) -> None:
    """Nodes a and b share clique 1, c has clique 2 of the same zone, d another zone of the region; f has no label."""
    made = cluster(
        in_blocks("a", region="r", zone="z", clique="1"),
        in_blocks("b", region="r", zone="z", clique="1"),
        in_blocks("c", region="r", zone="z", clique="2"),
        in_blocks("d", region="r", zone="y"),
        in_blocks("e", clique="1"),
        in_blocks("f"),
    )
    for number, node in enumerate(pods):
        made.set_pod(running(f"r{number}", node))
    assert scores(made) == expected


def test_the_default_weight_outweighs_cards_and_all_other_preferences() -> None:
    """The nearest nodes lead by half of the points, the cards by all of theirs."""
    weights = ScoreWeights()
    others = weights.cards + sum(weights.preferences.values()) - weights.network_blocks
    assert weights.network_blocks * 50 > others * 100


def test_pods_on_nodes_that_do_not_exist_count_nothing() -> None:
    """Their blocks are unknown."""
    made = cluster(*TWO_BLOCKS)
    made.set_pod(running("r", "gone"))
    assert scores(made) == [0, 0, 0, 0]


def test_the_part_of_the_network_blocks_is_explained() -> None:
    """By the name of its weight, for each node that takes the pod."""
    made = cluster(*TWO_BLOCKS)
    made.set_pod(running("r", "a"))
    evaluation = finish(cycle_of(made).dry_run(member("p"))).evaluation
    assert evaluation is not None
    assert evaluation.preferences is not None
    parts = evaluation.preferences.by_node()
    assert {name: parts[name]["network_blocks"] for name in "abcd"} == {"a": 100, "b": 100, "c": 50, "d": 50}
