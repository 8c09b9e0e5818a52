"""Vectors from kube-scheduler's TaintToleration: untolerated soft taints counted, scaled by the highest, reversed."""

from typing import Any

from scheduler.scoring import taint_toleration
from tests.scheduler.support.builders import node, pod
from tests.scheduler.support.preferring import cluster, everywhere, labelled, listed

NODES = cluster(
    labelled("n1"), labelled("n2", soft=("a",)), labelled("n3", soft=("a", "b", "c")), labelled("n4", soft=("b", "c"))
)


def scores(*tolerations: dict[str, Any]) -> list[int]:
    """Return the scores of the four nodes."""
    return listed(taint_toleration.scores(pod("p", tolerations=[*tolerations]), everywhere(NODES)))


def test_fewer_untolerated_taints_are_better() -> None:
    """0, 1, 3 and 2 of at most 3: 100 - 100 * 1 // 3 is 67, 100 - 100 * 2 // 3 is 34."""
    assert scores() == [100, 67, 0, 34]


def test_tolerated_taints_do_not_count() -> None:
    """By the effect PreferNoSchedule or by none; 0, 0, 2, 2."""
    for effect in ({"effect": "PreferNoSchedule"}, {}):
        assert scores({"key": "a", "operator": "Exists", **effect}) == [100, 100, 0, 0]
    assert scores({"operator": "Exists"}) == [100, 100, 100, 100]


def test_a_toleration_of_another_effect_does_not_count() -> None:
    """NoSchedule is not PreferNoSchedule."""
    assert scores({"operator": "Exists", "effect": "NoSchedule"}) == [100, 67, 0, 34]


def test_pods_are_concerned_while_a_node_has_a_taint_that_they_do_not_tolerate() -> None:
    """The test looks at the different taints, not at the nodes; a removed or changed node counts no more."""
    made, plain = cluster(labelled("n1", soft=("a",)), labelled("n2", soft=("a",))), pod("p")
    assert taint_toleration.concerns(plain, made.index)
    assert not taint_toleration.concerns(pod("q", tolerations=[{"key": "a", "operator": "Exists"}]), made.index)
    made.drop_node("n1")
    assert taint_toleration.concerns(plain, made.index)
    made.set_node(node("n2", spec={"taints": [{"key": "a", "effect": "NoSchedule"}]}))
    assert not taint_toleration.concerns(plain, made.index)
