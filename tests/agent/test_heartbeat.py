import re

from agent import heartbeat


def test_heartbeat_says_who_until_when() -> None:
    """A reader needs the holder, the time of renewal and how long it is valid."""
    lease = heartbeat.lease("n1", identity="agent-x", seconds=60, unix=1_700_000_000.25)
    assert lease["metadata"] == {"name": "gpu-n1", "namespace": "tranche-system"}
    assert lease["spec"] == {
        "holderIdentity": "agent-x",
        "leaseDurationSeconds": 60,
        "renewTime": "2023-11-14T22:13:20.250000Z",
    }


def test_every_node_has_a_valid_name_of_its_own() -> None:
    """A node's name may have 253 characters, as many as a Lease's: long ones end in a hash of the whole."""
    label = "a" * 61 + "."
    nodes = ["n1", "x" * 249, *(label * 4 + last for last in ("abcde", "abcdf", "a.b-c"))]
    names = [heartbeat.lease_name(node) for node in nodes]
    assert names[:2] == ["gpu-n1", "gpu-" + "x" * 249]
    assert len(set(names)) == len(nodes)
    assert all(len(name) <= 253 for name in names)
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", name) for name in names)
