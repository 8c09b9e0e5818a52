"""The lines about the connections between a pod's cards."""

import argparse

import msgspec

from cli.explain import explanation_lines
from cli.explain.explain import text
from scheduler.api.explanation_types import Explanation, NodeExplanation, ReasonGroup
from scheduler.api.topology_types import TopologyExplanation, TopologyRequest

REQUEST = TopologyRequest(2, "contiguous", "Required")


def shown_set(sentence: str, container: str = "main") -> TopologyExplanation:
    """Return the explanation of a set with this text."""
    return TopologyExplanation(container, REQUEST, None, None, (), sentence)


def rejecting(name: str, sentence: str) -> NodeExplanation:
    """Return a node without an acceptable free set."""
    return NodeExplanation(
        name=name,
        fits=False,
        chosen=False,
        reason="2/2 CardTopologyMismatch",
        code="",
        resolvable=True,
        container="main",
        counts={"CardTopologyMismatch": 2},
        score=None,
        cards=(),
        topology=(shown_set(sentence),),
    )


def waiting(*nodes: NodeExplanation) -> Explanation:
    """Return the explanation of a pod that all nodes reject."""
    group = ReasonGroup("2/2 CardTopologyMismatch", resolvable=True, nodes=tuple(node.name for node in nodes))
    note = "no available node, …"
    return Explanation("team", "a", "waits", f"waits: {note}", note, resolvable=True, nodes=nodes, reasons=(group,))


def printed(explanation: Explanation, *, node: str = "", output: str = "") -> str:
    """Return what `kubectl gpu explain` prints."""
    return text(explanation, argparse.Namespace(no_headers=False, output=output, node=node))


def test_the_set_of_a_pod_is_a_line() -> None:
    """One line for one container; the container is named where there are several."""
    one = Explanation("team", "a", "bound", "is bound to n1", topology=(shown_set("cards 0,1: fast"),))
    assert "\ntopology: cards 0,1: fast\n" in printed(one)
    two = msgspec.structs.replace(one, topology=(shown_set("first"), shown_set("second", "side")))
    assert explanation_lines.of_topology(two) == ["topology, container main: first", "topology, container side: second"]


def test_nodes_with_the_same_text_share_a_line() -> None:
    """A pending pod has a line for each set that it waits for; only the wide format has all of many."""
    explanation = waiting(rejecting("n1", "slow"), rejecting("n2", "slow"), rejecting("n3", "held"))
    assert "\ntopology on n1,n2: slow\ntopology on n3: held\n" in printed(explanation)
    many = waiting(*(rejecting(f"n{number}", f"set {number}") for number in range(8)))
    assert explanation_lines.of_topology_rejections(many)[5:] == ["… and 3 more; -o wide shows all of them"]
    assert len(explanation_lines.of_topology_rejections(many, wide=True)) == 8


def test_one_node_has_its_own_line() -> None:
    """`--node` shows the set of that node only."""
    explanation = waiting(rejecting("n1", "slow"), rejecting("n3", "held"))
    shown = printed(explanation, node="n3")
    assert "\ntopology on n3: held\n" in shown
    assert "slow" not in shown


def test_a_pod_without_a_demand_has_no_line() -> None:
    """Nothing is said where nothing is demanded."""
    assert "topology" not in printed(Explanation("team", "a", "bound", "is bound to n1"))
