"""The annotations of a resize."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation import limits
from allocation.allocation import Allocation, CardShare, charges
from allocation.burst import ContainerLimits
from allocation.errors import AllocationError, MalformedRecordError
from allocation.names import ALLOCATION, RESIZED
from allocation.pod import Container, Resources
from allocation.quantity import INT32_MAX
from allocation.request import ContainerRequest, Kind, PodRequest
from allocation.settings import AllocationSettings
from allocation.wire import pod_allocation, record, resize_record
from allocation.wire.resize_record import Resized, Size

SETTINGS = AllocationSettings()


def allocation(*sizes: tuple[int, int], uuid: str = "GPU-0") -> Allocation:
    """Return the allocation of containers c0, c1, … that share a card."""
    return Allocation("n1", {f"c{n}": (CardShare(uuid, 0, *size),) for n, size in enumerate(sizes)})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"main":6000}',
        '{"main":{"gpumem":0}}',
        '{"main":{"gpumem":-1}}',
        '{"main":{"gpumem":1.5}}',
        '{"main":{"gpumem":"6000"}}',
        f'{{"main":{{"gpumem":{INT32_MAX + 1}}}}}',
        '{"main":{"gpucores":101}}',
        '{"main":{"gpu":2}}',
        '{"":{"gpumem":1}}',
        '{"\ud800":{}}',
        "[" * 2000,
    ],
)
def test_other_texts_are_refused_with_the_form(text: str) -> None:
    """The message has the annotation, its form, and no more of a value than a person reads."""
    with pytest.raises(AllocationError, match=r"gpu\.scheduling/resize.*of the form") as caught:
        resize_record.decode_wish(text)
    assert len(str(caught.value)) < 700


def test_the_size_of_a_wish_is_limited() -> None:
    """In characters, and in containers."""
    longest = {
        f"{'x' * 60}{number:03}": Size(INT32_MAX, 100, ContainerLimits(INT32_MAX, 100))
        for number in range(limits.GPU_CONTAINERS)
    }
    text = resize_record.encode_wish(longest)
    assert len(text) <= resize_record.LONGEST_WISH
    assert resize_record.decode_wish(text) == longest
    with pytest.raises(AllocationError, match="at most 32 containers"):
        resize_record.decode_wish(resize_record.encode_wish({f"c{number}": Size(1) for number in range(33)}))
    with pytest.raises(AllocationError, match="at most 8192 characters") as caught:
        resize_record.decode_wish("{" + " " * resize_record.LONGEST_WISH)
    assert len(str(caught.value)) < 700


def test_what_is_not_wished_stays() -> None:
    """By container, and by resource; memory is in units of the resource."""
    before = allocation((100, 200), (300, 400))
    after = resize_record.wished(before, {"c1": Size(gpumem=5)}, AllocationSettings(memory_factor=10))
    assert after == allocation((100, 200), (50, 400))
    assert resize_record.wished(before, {"c0": Size(gpucores=7)}, AllocationSettings()) == allocation(
        (100, 70), (300, 400)
    )
    with pytest.raises(AllocationError, match="names container c2, which has no cards: those with cards are c0, c1"):
        resize_record.wished(before, {"c2": Size(1)}, AllocationSettings())
    with pytest.raises(AllocationError, match="more than any card has"):
        resize_record.wished(before, {"c0": Size(INT32_MAX)}, AllocationSettings(memory_factor=2))


def test_a_limit_is_never_below_its_request() -> None:
    """A wish sets both, or one that fits the other; a limit that equals the request ends it."""
    before = allocation((100, 200), (300, 400))
    settings = AllocationSettings(memory_bursting=True)
    grown = resize_record.wished(before, {"c0": Size(limits=ContainerLimits(gpumem=150, gpucores=60))}, settings)
    (share,) = grown.containers["c0"]
    assert (share.memory_mib, share.memory_limit_mib, share.cores, share.cores_limit) == (100, 150, 200, 600)
    for size in (Size(gpucores=61), Size(limits=ContainerLimits(gpucores=19)), Size(gpumem=151)):
        with pytest.raises(AllocationError, match="would be below the request"):
            resize_record.wished(grown, {"c0": size}, settings)
    ended = resize_record.wished(grown, {"c0": Size(limits=ContainerLimits(gpumem=100, gpucores=20))}, settings)
    assert ended == before
    with pytest.raises(AllocationError, match=r"allocation\.memory_bursting"):
        resize_record.wished(before, {"c0": Size(limits=ContainerLimits(gpumem=150))}, AllocationSettings())


def test_a_record_is_read_again() -> None:
    """With or without a generation and containers."""
    for resized in (
        Resized({"c0": [(1, 2)]}),
        Resized({"c0": [(1, 2), (3, 4)]}, 7),
        Resized({"c0": [(1, 2)]}, 7, {"c0": "containerd://x"}),
    ):
        assert resize_record.resized_of({RESIZED: resize_record.encode_resized(resized)}) == resized
    assert resize_record.resized_of({}) is None


@pytest.mark.parametrize(
    "text", ["", "{}", '{"from":{"c0":[[1]]}}', '{"from":{},"other":1}', '{"from":{"c0":[[-1,0]]}}']
)
def test_a_record_that_cannot_be_read_hides_nothing(text: str) -> None:
    """It may have said that more is used: the pod counts as one whose use is unknown."""
    with pytest.raises(MalformedRecordError, match="gpu.scheduling/resized"):
        resize_record.resized_of({RESIZED: text})


def test_a_record_of_other_cards_hides_nothing() -> None:
    """Neither that of other containers nor one of other numbers of cards."""
    for before in ({}, {"c1": [(1, 1)]}, {"c0": [(1, 1), (1, 1)]}):
        with pytest.raises(MalformedRecordError, match="not about the cards"):
            resize_record.usable(allocation((1, 1)), Resized(before))
    with pytest.raises(MalformedRecordError, match="never changes cards"):
        resize_record.ceiling(allocation((1, 1)), allocation((1, 1), uuid="GPU-1"))


def test_a_bound_pod_is_charged_for_the_larger_size() -> None:
    """As its annotations say, so that a restart counts the same; and for a size that is about to be written."""
    limits_of = Resources(limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "100"})
    spec = type("Spec", (), {"containers": [Container("c0", limits_of)], "init_containers": []})()
    annotations = {
        ALLOCATION: record.encode(allocation((100, 500))),
        RESIZED: resize_record.encode_resized(Resized({"c0": [(300, 400)]})),
    }
    for resized_to, expected in ((None, (300, 500)), (allocation((200, 900)), (300, 900))):
        held = pod_allocation.read(spec, annotations, node="n1", settings=SETTINGS, resized_to=resized_to)
        assert held is not None
        assert (held[1][0].memory_mib, held[1][0].cores) == expected
        assert held[0] == allocation((100, 500))


SIZES = st.tuples(st.integers(0, 1000), st.integers(0, 1000))
KINDS = st.sampled_from(list(Kind))


@given(st.lists(st.tuples(KINDS, st.lists(SIZES, min_size=1, max_size=4)), min_size=1, max_size=4), st.data())
def test_the_ceiling_covers_every_mixture(
    containers: list[tuple[Kind, list[tuple[int, int]]]], data: st.DataObject
) -> None:
    """Each container starts when it wants: whatever size each has had, their sum is charged."""
    request = PodRequest(
        tuple(ContainerRequest(f"c{n}", kind, "", 1, memory_mib=1) for n, (kind, _) in enumerate(containers))
    )
    most = allocation(*(sizes[0] for _, sizes in containers))
    for position in range(1, 4):
        most = resize_record.ceiling(most, allocation(*(sizes[position % len(sizes)] for _, sizes in containers)))
    mixture = allocation(*(data.draw(st.sampled_from(sizes)) for _, sizes in containers))
    (charged,), (used,) = charges(most, request), charges(mixture, request)
    assert charged.memory_mib >= used.memory_mib
    assert charged.cores >= used.cores


@pytest.mark.parametrize("wish", [Size(gpucores=50), Size(limits=ContainerLimits(gpucores=80))])
def test_compute_in_tflops_has_no_other_size_and_no_limit(wish: Size) -> None:
    """Quotas of TFLOPs count what it is, and would not count more; its memory may have another size."""
    in_tflops = Allocation("n1", {"c0": (CardShare("GPU-a", 0, 100, 333, tflops=104_000),)})
    with pytest.raises(AllocationError, match="container c0 other gpucores, but the pod requests compute in TFLOPs"):
        resize_record.wished(in_tflops, {"c0": wish}, AllocationSettings())
    assert resize_record.wished(in_tflops, {"c0": Size(gpumem=7)}, AllocationSettings()).containers["c0"][0].tflops
