"""Limits above requests: the annotation, and what the request, the card and the container have of it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from allocation import burst, limits, quota
from allocation.allocation import Allocation, CardShare, charges
from allocation.errors import AllocationError
from allocation.names import ALLOCATION, LIMITS
from allocation.quota import Burst, Headroom, Limit
from allocation.request import ContainerRequest, Kind, PodRequest
from allocation.settings import AllocationSettings
from allocation.wire import environment, record

SETTINGS = AllocationSettings(memory_bursting=True)
MAIN = ContainerRequest("main", Kind.REGULAR, "spec.containers[0]", 2, memory_mib=3000, cores=300)
SIDE = ContainerRequest("side", Kind.REGULAR, "spec.containers[1]")
MEMORY = Limit("GpuQuota", "team", "nvidia.com/gpumem", 8000, 1)
CORES = Limit("GpuQuota", "team", "nvidia.com/gpucores", 90, 10)


def limited(text: Any, *, settings: AllocationSettings = SETTINGS, request: ContainerRequest = MAIN) -> PodRequest:
    """Return the request of a pod with this annotation."""
    written = text if isinstance(text, str) else json.dumps(text)
    return burst.limited(PodRequest((request, SIDE)), {LIMITS: written}, settings)


def test_a_limit_is_beside_the_request() -> None:
    """In the units of the resources; what is reserved stays, and a pod without the annotation has none."""
    (main, side) = limited({"main": {"gpucores": 60, "gpumem": 4000}}).containers
    assert (main.memory_mib, main.memory_limit_mib, main.cores, main.cores_limit) == (3000, 4000, 300, 600)
    assert side == SIDE
    assert burst.limited(PodRequest((MAIN, SIDE)), {}, SETTINGS) == PodRequest((MAIN, SIDE))
    in_gib = AllocationSettings(memory_bursting=True, memory_factor=1024)
    assert limited({"main": {"gpumem": 4}}, settings=in_gib).containers[0].memory_limit_mib == 4096


def test_a_limit_that_equals_the_request_changes_nothing() -> None:
    """Such a pod is like one without the annotation."""
    assert limited({"main": {"gpucores": 30, "gpumem": 3000}}) == PodRequest((MAIN, SIDE))
    assert limited({"main": {}}) == limited({}) == PodRequest((MAIN, SIDE))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "of the form"),
        ({"main": {"gpucores": 101}}, "gpucores"),
        ({"main": {"gpucores": 0}}, "gpucores"),
        ({"main": {"gpu": 2}}, "gpu"),
        ({"main": {"gpucores": 29}}, "gpucores is 29, and the container requests 30"),
        ({"main": {"gpumem": 2999}}, "the limit is 2999 MiB, and the container requests 3000"),
        ({"main": {"gpumem": 2**31}}, "gpumem"),
        ({"side": {"gpucores": 60}}, "names container side, which requests no GPU: those that do are main"),
        ({"other": {"gpucores": 60}}, "names container other"),
        ({f"c{number}": {} for number in range(limits.GPU_CONTAINERS + 1)}, "at most 32 containers"),
        ("{" + " " * burst.LONGEST, "at most 4096 characters"),
        ('{"\ud800":{}}', "of the form"),
    ],
)
def test_a_limit_that_cannot_be_is_refused(text: Any, words: str) -> None:
    """The message names the annotation, and is short however long the annotation is."""
    with pytest.raises(AllocationError, match=words) as caught:
        limited(text)
    assert LIMITS in str(caught.value)
    assert len(str(caught.value)) < 700


def test_memory_has_limits_only_where_the_configuration_permits_them() -> None:
    """Nobody can take memory back from a container, so another one may lack what it requests."""
    with pytest.raises(AllocationError, match=r"switched off here \(allocation\.memory_bursting\)"):
        limited({"main": {"gpumem": 4000}}, settings=AllocationSettings())
    assert limited({"main": {"gpucores": 60}}, settings=AllocationSettings()).is_bursting


def test_memory_has_a_limit_only_beside_an_amount() -> None:
    """A percentage is another amount on each card."""
    whole = ContainerRequest("main", Kind.REGULAR, "", 1, memory_percent=50)
    with pytest.raises(AllocationError, match=r"requests 50 % of each card's memory: request an amount"):
        limited({"main": {"gpumem": 4000}}, request=whole)
    with pytest.raises(AllocationError, match="are more than any card has"):
        limited({"main": {"gpumem": 2**31 - 1}}, settings=AllocationSettings(memory_bursting=True, memory_factor=2))


def test_a_quota_counts_each_card() -> None:
    """Twice the limits less the requests, for two cards; the request itself counts as without limits."""
    request = limited({"main": {"gpucores": 60, "gpumem": 4000}})
    assert burst.of_request(request) == Burst(2000, 600)
    assert quota.minimum_request(request).cores == 600
    assert burst.of_request(PodRequest((MAIN, SIDE))) == Burst()


def test_what_a_pod_may_use_is_taken_from_what_is_left() -> None:
    """Memory and cores, also if only one of them is limited; the limits say how much it was."""
    both = Headroom(8000, 900, limits=(MEMORY, CORES, None, None))
    left = both.less_burst(Burst(2000, 600))
    assert (left.memory_mib, left.cores, left.cards, left.tflops) == (6000, 300, None, None)
    assert left.limits == (replace(MEMORY, burst=2000), replace(CORES, burst=600), None, None)
    assert Headroom(cores=900, limits=(None, CORES, None, None)).less_burst(Burst(2000, 600)).cores == 300
    assert both.less_burst(Burst()) is both
    assert quota.UNLIMITED.less_burst(Burst(2000, 600)) is quota.UNLIMITED


def test_the_container_has_the_limit_and_the_card_is_charged_the_request() -> None:
    """The record keeps both, so a restart counts the same."""
    shares = (CardShare("GPU-a", 0, 3000, 300, memory_limit_mib=4000, cores_limit=600),)
    placed = Allocation("n1", {"main": shares})
    written = environment.annotations(placed)
    assert record.decode(written[ALLOCATION]) == placed
    assert '"memoryLimitMiB":4000,"coresLimit":600' in written[ALLOCATION]
    assert written["cuda-device-memory-limit-0.gpu.scheduling/main"] == "4000m"
    assert written["cuda-device-memory-limit.gpu.scheduling/main"] == "4000m"
    assert written["cuda-device-sm-limit.gpu.scheduling/main"] == "60"
    (charge,) = charges(record.decode(written[ALLOCATION]), PodRequest((MAIN,)))
    assert (charge.memory_mib, charge.cores) == (3000, 300)
    assert (charge.burst_memory_mib, charge.burst_cores) == (1000, 300)


amounts = st.tuples(st.integers(1, 5), st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
pods = st.lists(st.tuples(st.sampled_from(Kind), amounts), min_size=1, max_size=4)


@given(pods)
def test_request_and_burst_are_what_the_limits_would_be_charged(containers: list[tuple[Kind, Any]]) -> None:
    """For each card, whatever containers there are and however long they live; nothing is ever negative."""
    request = PodRequest(tuple(ContainerRequest(f"c{at}", kind, "", 1) for at, (kind, _) in enumerate(containers)))
    placed = Allocation(
        "n1",
        {
            f"c{at}": (
                CardShare(
                    "GPU-a",
                    0,
                    memory,
                    cores,
                    memory_limit_mib=memory + more_memory if more_memory else 0,
                    cores_limit=cores + more_cores if more_cores else 0,
                ),
            )
            for at, (_, (memory, cores, more_memory, more_cores)) in enumerate(containers)
        },
    )
    (charge,), (most,) = charges(placed, request), charges(placed.at_limits(), request)
    assert charge.memory_mib + charge.burst_memory_mib == most.memory_mib
    assert charge.cores + charge.burst_cores == most.cores
    assert charge.burst_memory_mib >= 0
    assert charge.burst_cores >= 0
    assert (most.burst_memory_mib, most.burst_cores) == (0, 0)
