"""Vectors from kube-scheduler's NodeAffinity: sums of weights, scaled by the highest, rounded down."""

from typing import Any

from scheduler.scoring import node_affinity
from tests.scheduler.support.builders import pod
from tests.scheduler.support.preferring import PREFERRED, cluster, everywhere, in_, labelled, listed

NODES = cluster(labelled("n1", zone="a", disk="ssd"), labelled("n2", zone="b"), labelled("n3", disk="ssd"))


def scores(*terms: dict[str, Any]) -> list[int]:
    """Return the scores of the three nodes."""
    return listed(node_affinity.scores(pod("p", affinity={"nodeAffinity": {PREFERRED: [*terms]}}), everywhere(NODES)))


def test_weights_of_matching_terms_add_up() -> None:
    """n1 has 2 + 5, n2 2, n3 5 of at most 7: 100 * 2 // 7 is 28, and 100 * 5 // 7 is 71."""
    assert scores(in_("zone", "a", "b", weight=2), in_("disk", "ssd", weight=5)) == [100, 28, 71]


def test_without_any_match_all_nodes_have_0() -> None:
    """The highest sum is 0, so nothing is scaled."""
    assert scores(in_("zone", "c")) == [0, 0, 0]


def test_an_empty_term_matches_no_node() -> None:
    """Unlike an empty label selector."""
    assert scores({"weight": 50, "preference": {}}, in_("zone", "b")) == [0, 100, 0]


def test_a_term_can_name_nodes() -> None:
    """By matchFields; labels and fields of one term must both match."""
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n3"]}]}
    both = {**by_name, "matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    assert scores({"weight": 1, "preference": by_name}, {"weight": 9, "preference": both}) == [0, 0, 100]


def test_only_a_pod_with_preferred_terms_is_concerned() -> None:
    """Required terms have been filtered by."""
    required = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]}
    hard = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    assert not node_affinity.concerns(pod("p", affinity=hard))
    assert node_affinity.concerns(pod("p", affinity={"nodeAffinity": {PREFERRED: [in_("zone", "a")]}}))
