"""Names that two packages must agree on."""

import re

from allocation import names


def test_heartbeat_lease_names_are_valid_and_unique() -> None:
    """A node's name can have 253 characters, as many as a Lease's: long names end in a hash of the whole name."""
    label = "a" * 61 + "."
    nodes = ["n1", "x" * 249, *(label * 4 + last for last in ("abcde", "abcdf", "a.b-c"))]
    found = [names.heartbeat_lease(node) for node in nodes]
    assert found[:2] == ["gpu-n1", "gpu-" + "x" * 249]
    assert len(set(found)) == len(nodes)
    assert all(len(name) <= 253 for name in found)
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", name) for name in found)
