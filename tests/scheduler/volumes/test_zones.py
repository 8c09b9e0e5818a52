"""A PersistentVolume with zone labels can be used in these zones."""

import pytest

from scheduler.volumes import zones

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA = "failure-domain.beta.kubernetes.io/zone"


@pytest.mark.parametrize(
    ("volume", "node", "fits"),
    [
        ({ZONE: "a"}, {ZONE: "a"}, True),
        ({ZONE: "a"}, {ZONE: "b"}, False),
        ({ZONE: "a__b"}, {ZONE: "b"}, True),
        ({ZONE: "a__ b"}, {ZONE: "b"}, True),
        ({ZONE: "a__"}, {ZONE: "b"}, True),
        ({BETA: "a"}, {ZONE: "a"}, True),
        ({BETA: "a"}, {BETA: "a", ZONE: "b"}, True),
        ({ZONE: "a"}, {BETA: "a"}, False),
        ({ZONE: "a", REGION: "r"}, {ZONE: "a"}, False),
        ({ZONE: "a"}, {"other": "x"}, True),
        ({}, {ZONE: "a"}, True),
    ],
)
def test_a_node_fits_by_its_labels(volume: dict[str, str], node: dict[str, str], fits: bool) -> None:  # noqa: FBT001
    """Sets are written with `__`; old names stand for new ones; a cluster without zones has no restriction."""
    assert zones.match(zones.of_labels(volume), node) is fits
