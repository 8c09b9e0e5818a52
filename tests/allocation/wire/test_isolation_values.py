"""The variables by which an isolation gets a container's limits."""

from hypothesis import given
from hypothesis import strategies as st

from allocation.allocation import Allocation, CardShare
from allocation.isolation import Isolation
from allocation.request import PodRequest
from allocation.wire import environment

UNEQUAL = (CardShare("GPU-b", 5, 5000, 300), CardShare("GPU-a", 2, 3000, 500))
"""Two cards as the scheduler chose them, the one with the larger index first."""

shares = st.lists(
    st.builds(
        CardShare,
        uuid=st.uuids().map(lambda uuid: f"GPU-{uuid}"),
        index=st.integers(0, 127),
        memory_mib=st.integers(1, 2**31 - 1),
        cores=st.integers(0, 1000),
    ),
    min_size=1,
    max_size=8,
    unique_by=(lambda share: share.index, lambda share: share.uuid),
)


def values(isolation: Isolation) -> dict[str, str]:
    """Return the variables of a container with two unequal shares."""
    return environment.values(UNEQUAL, isolation=isolation)


def test_cuda_limits_every_card_to_the_smallest_share() -> None:
    """NVIDIA's toolkit applies one limit to all cards: a larger one would use what other containers have."""
    assert values(Isolation.CUDA)["NVIDIA_GPU_MEMORY_LIMIT"] == "3000"
    assert values(Isolation.CUDA)["NVIDIA_GPU_MEMORY_REQUEST"] == "3000"


def test_mps_limits_each_card_by_its_ordinal() -> None:
    """The driver numbers a container's cards by their order on the node, whatever the order of their UUIDs."""
    assert values(Isolation.MPS)["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=3000M,1=5000M"
    assert values(Isolation.MPS)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "30"
    assert values(Isolation.MPS)["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"


def test_mps_has_no_percentage_of_zero() -> None:
    """Cores of 0 reserve no compute and limit none."""
    made = environment.values((CardShare("GPU-a", 0, 3000, 0),), isolation=Isolation.MPS)
    assert made["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "100"


def test_hami_core_gets_ordinals_with_their_own_limits() -> None:
    """It reads `CUDA_VISIBLE_DEVICES` as numbers: a UUID would be 0."""
    made = values(Isolation.HAMI_CORE)
    assert made["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert (made["CUDA_DEVICE_MEMORY_LIMIT_0"], made["CUDA_DEVICE_MEMORY_LIMIT_1"]) == ("3000m", "5000m")
    assert made["CUDA_DEVICE_MEMORY_LIMIT"] == "3000m"


def test_others_keep_the_order_of_the_scheduler() -> None:
    """CUDA sees cards in the order of their UUIDs, and each limit is that of the card in its place."""
    for isolation in (Isolation.NONE, Isolation.CUDA, Isolation.MIG):
        made = values(isolation)
        assert made["CUDA_VISIBLE_DEVICES"] == "GPU-b,GPU-a"
        assert made["CUDA_DEVICE_MEMORY_LIMIT_0"] == "5000m"


@given(shares=shares, isolation=st.sampled_from(Isolation))
def test_every_reference_of_an_isolation_gets_a_limit(shares: list[CardShare], isolation: Isolation) -> None:
    """What admission refers to and what the Binding carries are the same variables, and none of them is empty.

    HAMi-core does not limit by an empty variable, and NVIDIA's toolkit does not start a container with one.
    """
    keys = environment.references("main", len(shares), isolation=isolation)
    annotations = environment.annotations(Allocation("n", {"main": tuple(shares)}), isolation=isolation)
    assert all(environment.resolve(keys, annotations).values())
    assert set(environment.values(shares, isolation=isolation)) == set(keys)


@given(shares=shares, isolation=st.sampled_from(Isolation), more=st.integers(1, 1000))
def test_a_resize_changes_every_limit_of_an_isolation(shares: list[CardShare], isolation: Isolation, more: int) -> None:
    """A limit that stayed would hold the container to its old size, or let it use what it has given back."""
    resized = tuple(
        CardShare(share.uuid, share.index, share.memory_mib + more, min(share.cores + more, 1000)) for share in shares
    )
    allocation = Allocation("n", {"main": resized})
    before = environment.annotations(Allocation("n", {"main": tuple(shares)}), isolation=isolation)
    changed = environment.resize_annotations(allocation, PodRequest((), isolation))
    expected = environment.annotations(allocation, isolation=isolation)
    assert {**expected, **before, **changed} == {**changed, **expected}
