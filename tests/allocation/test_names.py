"""Names that two packages must agree on."""

import re
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from allocation import names

_LEASE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABELS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,10}[a-z0-9])?", fullmatch=True)
_SHORT = st.lists(_LABELS, min_size=1, max_size=3).map(".".join)
_LONG = st.tuples(st.sampled_from(("a" * 61 + ".", "n-0." * 15)), _LABELS).map(
    lambda parts: (parts[0] * 4 + parts[1])[:253]
)
_NODES = st.sets(st.sampled_from(("a", "a-0", "a-0-1", "a-0.1")) | _SHORT | _LONG, min_size=1, max_size=6)


def test_heartbeat_lease_names_are_valid_and_unique() -> None:
    """A node's name can have 253 characters, as many as a Lease's: long names end in a hash of the whole name."""
    label = "a" * 61 + "."
    nodes = ["n1", "x" * 249, *(label * 4 + last for last in ("abcde", "abcdf", "a.b-c"))]
    found = [names.heartbeat_lease(node) for node in nodes]
    assert found[:2] == ["agent-n1", names.heartbeat_lease("x" * 249)]
    assert len(set(found)) == len(nodes)
    assert all(len(name) <= 253 for name in found)
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", name) for name in found)


@given(_NODES.filter(lambda nodes: all(_LEASE.fullmatch(node) for node in nodes)))
def test_heartbeats_cards_and_instances_have_distinct_names(nodes: set[str]) -> None:
    """Of any nodes, also where the name of one continues that of another, or is as long as a Lease's."""
    cards = [(node, index, part) for node, index in product(sorted(nodes), (0, 1, 10)) for part in ("", "0", "u0")]
    found = [names.heartbeat_lease(node) for node in sorted(nodes)]
    found += [names.device_lease(node, index, instance=part) for node, index, part in cards]
    assert len(set(found)) == len(found)
    assert all(len(name) <= 253 and _LEASE.fullmatch(name) for name in found)


def test_the_name_of_an_older_agents_lease_is_unchanged() -> None:
    """It is what agents of early versions renew, and policy tranche-agent permits."""
    assert names.legacy_heartbeat_lease("n1") == "gpu-n1"
    assert names.legacy_heartbeat_lease("x" * 249) == "gpu-" + "x" * 249
    long = names.legacy_heartbeat_lease("x" * 253)
    assert (len(long), long[:200]) == (253, "gpu-" + "x" * 196)
