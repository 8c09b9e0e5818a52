"""A pod's request is read as HAMi reads it; values that HAMi silently misreads are errors."""

from types import SimpleNamespace

import pytest

from allocation.errors import InvalidFieldError
from allocation.pod import Container, Resources
from allocation.quantity import Quantity
from allocation.request import MAX_CARDS, ContainerRequest, Kind, PodRequest, ignored_percentages, read_request
from allocation.settings import AllocationSettings

SETTINGS = AllocationSettings()
GPU, MEMORY, PERCENT, CORES, TFLOPS = SETTINGS.resources.gpu_resources()


def container(name: str = "main", *, restart_policy: str | None = None, **limits: Quantity) -> Container:
    """Return a container with GPU limits, by short names."""
    keys = {"gpu": GPU, "memory": MEMORY, "percent": PERCENT, "cores": CORES}
    values = {keys[key]: value for key, value in limits.items()}
    return Container(name=name, resources=Resources(limits=values or None), restart_policy=restart_policy)


def read(
    *containers: Container, init: tuple[Container, ...] = (), settings: AllocationSettings = SETTINGS
) -> PodRequest:
    """Read a pod of these containers."""
    return read_request(SimpleNamespace(containers=containers, init_containers=init), settings)


def only(*containers: Container, settings: AllocationSettings = SETTINGS) -> ContainerRequest:
    """Read a pod and return the request of its first container."""
    return read(*containers, settings=settings).containers[0]


def test_memory_and_cores_are_per_card() -> None:
    """The example of the README requests 3000 MiB and 30 % of one card."""
    request = only(container(gpu="1", memory="3k", cores="30"))
    assert (request.count, request.memory_mib, request.cores) == (1, 3000, 300)


def test_a_count_alone_requests_whole_cards() -> None:
    """Without memory and cores, a container gets a card exclusively (HAMi's rules 1.4)."""
    request = only(container(gpu="1"))
    assert (request.memory_mib, request.memory_percent, request.cores) == (None, 100, 1000)
    assert request.memory_on(81920) == 81920


def test_memory_or_cores_alone_request_one_card() -> None:
    """The count defaults to one if memory or cores are requested."""
    assert only(container(memory="3000")).count == 1
    assert only(container(cores="30")).count == 1


def test_the_number_of_cards_is_limited() -> None:
    """Each card adds a variable to the pod, so a request for too many is an error before any is created."""
    assert only(container(gpu=str(MAX_CARDS))).count == MAX_CARDS
    with pytest.raises(InvalidFieldError, match="from 0 to 1024"):
        only(container(gpu=str(MAX_CARDS + 1)))


def test_a_percentage_rounds_down_on_the_card() -> None:
    """50 % of 81920 MiB is 40960; a third of 100 MiB is 33."""
    assert only(container(gpu="1", percent="50")).memory_on(81920) == 40960
    assert only(container(gpu="1", percent="33")).memory_on(100) == 33


def test_memory_wins_over_a_percentage() -> None:
    """If both are set, memory counts, and the user gets a warning."""
    spec = SimpleNamespace(containers=[container(gpu="1", memory="3000", percent="50")], init_containers=[])
    request, warnings = read_request(spec, SETTINGS), ignored_percentages(spec, SETTINGS)
    assert request.containers[0].memory_mib == 3000
    assert len(warnings) == 1
    assert MEMORY in warnings[0]


def test_default_memory_replaces_the_whole_card() -> None:
    """With a default in the settings, a request without memory is a share of a card."""
    request = only(container(gpu="1"), settings=AllocationSettings(default_memory_mib=4000, default_cores_percent=5))
    assert (request.memory_mib, request.cores) == (4000, 50)


def test_requests_are_read_without_limits() -> None:
    """Requests count for a container without limits."""
    stated = Container(name="main", resources=Resources(requests={GPU: "2"}))
    assert only(stated).count == 2


def test_containers_keep_their_order_and_lifetimes() -> None:
    """Init containers come first, as in HAMi's allocation string; one that always restarts is a sidecar."""
    request = read(
        container("main", gpu="1"),
        init=(container("init", gpu="1"), container("side", restart_policy="Always", memory="1")),
    )
    assert [(each.name, each.kind) for each in request.containers] == [
        ("init", Kind.INIT),
        ("side", Kind.SIDECAR),
        ("main", Kind.REGULAR),
    ]


def test_a_pod_without_gpu_resources_requests_no_gpu() -> None:
    """A container without a GPU keeps its position; a count of 0 means the same."""
    assert not read(container())
    assert not read(container(gpu="0"))
    assert len(read(container()).containers) == 1


def test_zero_of_everything_requests_no_gpu() -> None:
    """A template with the GPU turned off writes this, even where 0 is outside an amount's valid range."""
    assert not read(container(gpu="0", memory="0", percent="0", cores="0"))
    assert read(container(memory="0"))


@pytest.mark.parametrize("name", ["memory", "percent", "cores"])
def test_a_count_of_zero_with_another_amount_is_an_error(name: str) -> None:
    """Such a request is ambiguous, so a pod that runs with it closes its node."""
    with pytest.raises(InvalidFieldError, match="needs at least one GPU"):
        read(container(gpu="0", **{name: "30"}))


def test_a_priority_without_a_gpu_is_ignored() -> None:
    """It applies to no GPU, so an invalid priority does not make the pod unreadable."""
    stated = container(gpu="0")
    stated.resources.limits["nvidia.com/priority"] = "7"  # type: ignore[index]
    assert not read(stated)


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({"gpu": "1", "memory": "10Gi"}, MEMORY),
        ({"gpu": "1", "memory": "-1"}, MEMORY),
        ({"gpu": "1.5"}, GPU),
        ({"gpu": "1", "percent": "101"}, PERCENT),
        ({"gpu": "1", "percent": "0"}, PERCENT),
        ({"gpu": "1", "cores": "101"}, CORES),
        ({"gpu": "1", "cores": "a"}, CORES),
        ({"gpu": "0", "memory": "3000"}, GPU),
        ({"gpu": "1", "memory": str(2**31)}, MEMORY),
        ({"gpu": str(2**63)}, GPU),
    ],
)
def test_an_invalid_value_is_an_error_with_its_field(limits: dict[str, str], field: str) -> None:
    """The error has the path of the field, so that users find it in the manifest."""
    with pytest.raises(InvalidFieldError) as refused:
        only(container(**limits))
    assert refused.value.field == f'spec.containers[0].resources.limits["{field}"]'


@pytest.mark.parametrize("init", [False, True])
def test_containers_with_the_same_name_are_an_error(init: bool) -> None:  # noqa: FBT001
    """An allocation identifies containers by name, so two with the same name would count as one."""
    first, second = container(gpu="1"), container(gpu="1")
    with pytest.raises(InvalidFieldError) as refused:
        read(second, init=(first,)) if init else read(first, second)
    assert refused.value.field == ("spec.containers[0].name" if init else "spec.containers[1].name")


@pytest.mark.parametrize(("written", "percent"), [("0.5", 50), (0.25, 25), ("500m", 50), ("0.001", 1)])
def test_a_part_of_a_card_says_how_parts_are_requested(written: Quantity, percent: int) -> None:
    """As a percentage of its memory; other numbers have the usual remedy."""
    with pytest.raises(InvalidFieldError, match=f"for a part of a card write {GPU}: 1 and {PERCENT}: {percent}$"):
        only(container(gpu=written))
    with pytest.raises(InvalidFieldError, match="write a plain integer number of GPUs"):
        only(container(gpu="1.5"))
