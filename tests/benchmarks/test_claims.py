"""Pods with claims are compared with plain pods of the same turn."""

from types import MappingProxyType

from benchmarks import claims
from benchmarks.claims import EIGHT, FULL, ONE, PLAIN, SHARED
from benchmarks.fleets import CARDS
from benchmarks.watching import Bound


def bound(rate: float) -> Bound:
    """Return pods that got their nodes at this rate."""
    return Bound(MappingProxyType({f"p{number}": number / rate for number in range(11)}))


def test_the_ratio_is_taken_within_each_turn() -> None:
    """A machine that is slower in one turn slows both kinds of pods, which leaves their ratio as it is."""
    turns = [
        {PLAIN: bound(plain), SHARED: bound(plain), ONE: bound(plain / 2), EIGHT: bound(plain / 10)}
        for plain in (100.0, 1000.0, 10.0)
    ]
    rows = [row.figure for row, _ in claims.rates(FULL, turns)]
    assert rows == [
        "100 pods/s, 1.00 × without claims",
        "50 pods/s, 0.50 × without claims",
        "10 pods/s, 80 cards/s, 0.10 × without claims",
        "100, 1000, 10 pods/s",
    ]


def test_the_pods_of_all_turns_fit_the_fleet() -> None:
    """Otherwise the last pods would never get a node, and the run would end without a figure."""
    plain, shared, one = 1 / (CARDS * 10), 1 / (CARDS * 10), 1 / CARDS
    needed = FULL.turns * (FULL.pods * (plain + shared + one) + FULL.eights)
    assert needed < 0.95 * FULL.nodes


def test_a_pod_is_as_admission_leaves_it() -> None:
    """It names its claim, and states what the claim gives."""
    made = claims.pod("p", EIGHT)
    (container,) = made["spec"]["containers"]
    assert made["metadata"]["annotations"]["gpu.scheduling/claim"] == EIGHT
    assert container["resources"]["limits"]["nvidia.com/gpu"] == str(CARDS)
    assert container["resources"]["limits"]["nvidia.com/gpucores"] == "100"
    assert any(each["name"] == "CUDA_DEVICE_MEMORY_LIMIT_7" for each in container["env"])
    assert "gpu.scheduling/claim" not in str(claims.pod("p", PLAIN))
