"""Weights, totals, and which pods have preferences at all."""

import msgspec
import numpy as np
import pytest

from allocation.steps import finish
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import Scheduled
from scheduler.objects import Pod
from scheduler.scoring.candidates import NodeColumns, NodeList
from scheduler.scoring.node_scorer import NodeScorer, best_first, normalised
from scheduler.settings import NO_PREFERENCES, SchedulerSettings, ScoreWeights
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import allocated, pod, state, status
from tests.scheduler.support.preferring import PREFERRED, anyway, cluster, in_, labelled, near, running

ZONE_B = {"affinity": {"nodeAffinity": {PREFERRED: [in_("zone", "b")]}}}


def two_zones(*, weights: ScoreWeights | None = None) -> tuple[ClusterState, SchedulingCycle]:
    """Return a scheduler with n1 in zone a and n2 and n3 in zone b, each with two cards of 1000 MiB."""
    made = state()
    for name, zone in (("n1", "a"), ("n2", "b"), ("n3", "b")):
        made.set_node(labelled(name, zone=zone))
        made.agent_reports.set(status(name))
    return made, SchedulingCycle(made, weights=weights or ScoreWeights())


def placed(cycle: SchedulingCycle, pending: Pod) -> Scheduled:
    """Return where a pod would go."""
    result = finish(cycle.dry_run(pending)).result
    assert isinstance(result, Scheduled)
    return result


def test_preferences_choose_among_nodes_that_are_as_good_for_the_cards() -> None:
    """Without them the first by name is chosen. The note has the totals: 100 * 100 for the cards, and 2 * 100."""
    _, cycle = two_zones()
    assert placed(cycle, pod("p", memory=100)).node == "n1"
    found = placed(cycle, pod("p", memory=100, **ZONE_B))
    assert found.node == "n2"
    assert "3 nodes fit(n2:10200.00,n3:10200.00,n1:10000.00)" in found.note


def test_cards_come_first_unless_their_weight_is_small() -> None:
    """A pod on n1 makes it the best for binpack: 10000 points by default, 100 of 200 with weight 1."""
    made, by_default = two_zones()
    made.set_pod(allocated("a", node="n1", memory=500))
    pending = pod("p", memory=100, **ZONE_B)
    assert placed(by_default, pending).node == "n1"
    assert placed(SchedulingCycle(made, weights=ScoreWeights(cards=1)), pending).node == "n2"
    assert placed(SchedulingCycle(made, weights=ScoreWeights(cards=0)), pending).node == "n2"


def test_a_total_is_the_sum_of_weights_times_scores() -> None:
    """Cards are scaled to their range, whatever their sign."""
    scorer = NodeScorer(cluster(), ScoreWeights(cards=10, node_affinity=3, pod_affinity=1))
    parts = {"node_affinity": np.array([100, 0, 50]), "pod_affinity": np.array([0, 0, 7])}
    total = scorer.total(["a", "b", "c"], np.array([-3.0, -1.0, -2.0]), parts)
    assert total.totals.tolist() == [300.0, 1000.0, 500.0 + 150.0 + 7.0]
    assert total.by_node()["c"] == {"cards": 50.0, "node_affinity": 50.0, "pod_affinity": 7.0}
    assert scorer.total(["a"], None, {"node_affinity": np.array([9])}).totals.tolist() == [27.0]


def test_equally_good_cards_all_have_100() -> None:
    """They do not decide."""
    assert normalised(np.array([7.5, 7.5])).tolist() == [100.0, 100.0]


def test_ties_go_to_the_better_cards_and_then_to_the_first() -> None:
    """The order of nodes without preferences."""
    assert [*best_first(np.array([1.0, 5.0, 5.0, 5.0]), np.array([9.0, 1.0, 2.0, 2.0]))] == [2, 3, 1, 0]


def test_a_pod_has_only_the_preferences_that_can_distinguish_nodes() -> None:
    """Its own, those of running pods about it, untolerated soft taints, and what an administrator weighs."""
    plain = pod("p", labels={"app": "y"})
    soft, attracting = (
        labelled("n1", soft=("a",)),
        running("a", "n1", affinity={"podAffinity": {PREFERRED: [near("zone", app="y")]}}),
    )
    weights = ScoreWeights()
    assert NodeScorer(cluster(labelled("n1")), weights).preferences(plain) == ()
    assert NodeScorer(cluster(soft), weights).preferences(plain) == ("taint_toleration",)
    assert NodeScorer(cluster(labelled("n1"), running=(attracting,)), weights).preferences(plain) == ("pod_affinity",)
    own = pod("q", topologySpreadConstraints=[anyway("zone")], **ZONE_B)
    assert NodeScorer(cluster(labelled("n1")), weights).preferences(own) == ("node_affinity", "topology_spread")
    assert NodeScorer(cluster(soft, running=(attracting,)), NO_PREFERENCES).preferences(own) == ()
    weighed = ScoreWeights(image_locality=1, node_resources=1)
    assert NodeScorer(cluster(), weighed).preferences(plain) == ("image_locality", "node_resources")


def test_a_pod_without_gpus_follows_preferences_too() -> None:
    """Of equal totals, the node is chosen that has the least free CPU."""
    made, cycle = two_zones()
    used = {"requests": {"cpu": "1"}}
    made.set_pod(running("a", "n3", containers=[{"name": "main", "resources": used}]))
    found = placed(cycle, pod("p", **ZONE_B))
    assert found.node == "n3"
    assert "(n3:200.00,n2:200.00,n1:0.00)" in found.note


def test_the_best_node_on_which_all_containers_fit_is_chosen() -> None:
    """Each container fits on the preferred node by itself, but not both; the next best takes them."""
    made, cycle = two_zones(weights=ScoreWeights(cards=0))
    for name in ("n2", "n3"):
        made.set_pod(allocated(f"x{name}", node=name, memory=900))
        made.set_pod(allocated(f"y{name}", node=name, memory=200, card=1))
    limits = {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "700"}}
    both = [{"name": name, "resources": limits} for name in ("a", "b")]
    assert placed(cycle, pod("p", containers=both, **ZONE_B)).node == "n1"
    assert placed(cycle, pod("p", containers=both[:1], **ZONE_B)).node == "n2"


def test_in_extender_mode_kube_scheduler_follows_preferences() -> None:
    """An explanation there has the scores of the cards only."""
    made = state("n1", has_queue=False)
    evaluation = finish(SchedulingCycle(made).dry_run(pod("p", memory=100, **ZONE_B))).evaluation
    assert evaluation is not None
    assert evaluation.preferences is None


def test_columns_follow_changes_of_nodes() -> None:
    """Kept values equal those of the nodes as they are now: changed, added and removed ones."""
    made, _ = two_zones()
    columns = NodeColumns(made.ledger, made.node_cache.nodes)
    scorer, pending = NodeScorer(made.node_cache, ScoreWeights()), pod("p", **ZONE_B)
    for change in (
        lambda: None,
        lambda: made.set_node(labelled("n1", zone="b")),
        lambda: made.drop_node(labelled("n2")),
        lambda: (made.set_node(labelled("n4", zone="b")), made.agent_reports.set(status("n4"))),
        lambda: made.agent_reports.drop(status("n3")),
    ):
        change()
        kept = columns.candidates(made.ledger.order())
        nodes = NodeList([made.node_cache.nodes[name] for name in kept.names if name in made.node_cache])
        expected = finish(scorer.score(pending, ["node_affinity"], nodes))["node_affinity"].tolist()
        found = finish(scorer.score(pending, ["node_affinity"], kept))["node_affinity"].tolist()
        assert [score for name, score in zip(kept.names, found, strict=True) if name in made.node_cache] == expected


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"node_affinity": 101}, "weights.node_affinity is 101: it must be an integer from 0 to 100"),
        ({"topology_spread": -1}, "weights.topology_spread is -1: it must be an integer from 0 to 100"),
        ({"cards": 10_001}, "weights.cards is 10001: it must be an integer from 0 to 10000"),
        ({"stranded": -1}, "weights.stranded is -1: it must be an integer from 0 to 10000"),
        ({"network_blocks": 10_001}, "weights.network_blocks is 10001: it must be an integer from 0 to 10000"),
        ({"node_resources_strategy": "Random"}, "Invalid enum value 'Random'"),
        ({"cards": 1.5}, "Expected `int`, got `float`"),
    ],
)
def test_weights_out_of_range_are_refused(weights: dict[str, object], message: str) -> None:
    """The message names the setting, its value and its range."""
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert({"weights": weights}, SchedulerSettings)
