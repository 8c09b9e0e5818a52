"""The network blocks of nodes: nested, never overlapping, and the same however labels came about."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.filters.network_blocks import NetworkBlocks
from scheduler.settings import NETWORK_LEVELS, SchedulerSettings
from tests.scheduler.support.builders import state
from tests.scheduler.support.gangs import CLIQUE, REGION, ZONE, in_blocks

LEVELS = ("zone", "rack", "clique")
NAMES = st.sampled_from(["n1", "n2", "n3", "n4"])
LABELS = st.dictionaries(st.sampled_from([*LEVELS, "other"]), st.sampled_from("ab"))


def of_labels(**nodes: dict[str, str]) -> NetworkBlocks:
    """Return the blocks of nodes with these labels."""
    made = NetworkBlocks(LEVELS)
    for name, labels in nodes.items():
        made.set_node(name, labels)
    return made


def contents(made: NetworkBlocks) -> list[dict[Any, set[str]]]:
    """Return the nodes of the blocks of each level, by the labels that define them."""
    return [{block.values: block.nodes for block in made.at(level)} for level in range(len(LEVELS))]


def nodes_near(made: NetworkBlocks, name: str) -> list[set[str]]:
    """Return the nodes of the block of a node at each level, the widest first; empty where it is in none."""
    return [block.nodes if block is not None else set() for block in made.of(name)]


@given(st.lists(st.tuples(NAMES, LABELS), max_size=30))
def test_blocks_after_changes_are_those_of_the_labels(changes: list[tuple[str, dict[str, str]]]) -> None:
    """Changed, removed and new nodes; and nothing is kept of blocks and nodes that do not exist any more."""
    changed, labels = NetworkBlocks(LEVELS), dict[str, dict[str, str]]()
    for name, after in changes:
        changed.set_node(name, after)
        labels[name] = after
    built = of_labels(**labels)
    assert contents(changed) == contents(built)
    for name in labels:
        assert nodes_near(changed, name) == nodes_near(built, name)
    assert bool(changed) == any(label in LEVELS for of_node in labels.values() for label in of_node)


@given(st.dictionaries(NAMES, LABELS))
def test_two_nodes_share_a_block_if_they_agree_in_its_label_and_all_wider_ones(
    nodes: dict[str, dict[str, str]],
) -> None:
    """A label that both nodes lack is one in which they agree, except for that of the level itself."""
    made = of_labels(**nodes)
    for left, of_left in nodes.items():
        for right, of_right in nodes.items():
            shared = [block is not None and right in block.nodes for block in made.of(left)]
            expected = [
                level in of_left and all(of_left.get(wider) == of_right.get(wider) for wider in LEVELS[: place + 1])
                for place, level in enumerate(LEVELS)
            ]
            assert shared == expected


def test_a_number_is_never_used_again() -> None:
    """A value that was computed for an earlier block matches no later one."""
    made = of_labels(n1={"rack": "a"})
    first = made.of("n1")[1]
    made.set_node("n1", {})
    made.set_node("n1", {"rack": "a"})
    again = made.of("n1")[1]
    assert first is not None
    assert again is not None
    assert 0 < first.id < again.id


def test_a_block_that_keeps_its_labels_keeps_its_number() -> None:
    """Whatever happens to its other nodes, and to narrower labels."""
    made = of_labels(n1={"zone": "a"}, n2={"zone": "a", "rack": "x"})
    block = made.of("n1")[0]
    made.set_node("n2", {"zone": "a", "rack": "y"})
    assert made.of("n2")[0] is made.of("n1")[0] is block
    made.set_node("n2", {})
    assert made.of("n1")[0] is block


def test_the_node_cache_has_the_blocks_of_all_nodes() -> None:
    """Regions, zones and NVLink domains by default; a node that is deleted is in none."""
    made = state()
    assert (REGION, ZONE, CLIQUE) == NETWORK_LEVELS
    for name in ("n1", "n2"):
        made.set_node(in_blocks(name, zone="a", clique=f"domain.{name}"))
    network = made.node_cache.network
    assert nodes_near(network, "n1") == [set(), {"n1", "n2"}, {"n1"}]
    changed = in_blocks("n2", zone="b")
    made.set_node(changed, made.node_cache.nodes["n2"])
    assert nodes_near(network, "n2") == [set(), {"n2"}, set()]
    made.drop_node(changed)
    assert nodes_near(network, "n2") == [set(), set(), set()]


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        (["zone", ""], r"network_levels\[1\] is '': it must be the key of a label"),
        (["a/b/c"], r"network_levels\[0\] is 'a/b/c': it must be the key of a label"),
        (["zone=a"], "it must be the key of a label"),
        (["n" * 64], "it must be the key of a label"),
        (["zone", "rack", "zone"], r"network_levels\[2\] is 'zone', which is in the list already"),
    ],
)
def test_levels_that_are_no_labels_are_refused(levels: list[str], message: str) -> None:
    """The message names the place in the list and the value."""
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert({"network_levels": levels}, SchedulerSettings)


def test_levels_of_clouds_and_none_at_all_are_accepted() -> None:
    """Labels with and without a prefix."""
    for levels in ([], ["rack"], ["topology.k8s.aws/network-node-layer-1", "cloud.google.com/gce-topology-block"]):
        assert msgspec.convert({"network_levels": levels}, SchedulerSettings).network_levels == tuple(levels)
