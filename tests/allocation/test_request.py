"""A pod's wish is read as HAMi reads it, and refused where HAMi would misread it silently."""

from types import SimpleNamespace

import pytest

from allocation.errors import InvalidFieldError
from allocation.pod import Container, Resources
from allocation.quantity import Quantity
from allocation.request import MOST_CARDS, ContainerRequest, Kind, PodRequest, read_request
from allocation.settings import AllocationSettings

SETTINGS = AllocationSettings()
GPU, MEMORY, PERCENT, CORES = SETTINGS.resources.asking()


def container(name: str = "main", *, restart_policy: str | None = None, **limits: Quantity) -> Container:
    """Answer a container with GPU limits, by short names."""
    keys = {"gpu": GPU, "memory": MEMORY, "percent": PERCENT, "cores": CORES}
    values = {keys[key]: value for key, value in limits.items()}
    return Container(name=name, resources=Resources(limits=values or None), restart_policy=restart_policy)


def read(
    *containers: Container, init: tuple[Container, ...] = (), settings: AllocationSettings = SETTINGS
) -> PodRequest:
    """Read a pod of these containers."""
    return read_request(SimpleNamespace(containers=containers, init_containers=init), settings)


def only(*containers: Container, settings: AllocationSettings = SETTINGS) -> ContainerRequest:
    """Read a pod and answer its first container's request."""
    return read(*containers, settings=settings).containers[0]


def test_memory_and_cores_are_per_card() -> None:
    """The example of the README: 3000 MiB and 30 % of one card."""
    request = only(container(gpu="1", memory="3k", cores="30"))
    assert (request.count, request.memory_mib, request.cores) == (1, 3000, 300)


def test_a_gpu_alone_is_a_whole_card() -> None:
    """Without memory and cores a container gets the card to itself (hami.md 0.3)."""
    request = only(container(gpu="1"))
    assert (request.memory_mib, request.memory_percent, request.cores) == (None, 100, 1000)
    assert request.memory_on(81920) == 81920


def test_memory_alone_means_one_card() -> None:
    """The count defaults to one where memory or cores are named."""
    assert only(container(memory="3000")).count == 1
    assert only(container(cores="30")).count == 1


def test_the_number_of_cards_has_an_end() -> None:
    """Every card is a variable in the pod: who asks for two thousand million is refused before anything is made."""
    assert only(container(gpu=str(MOST_CARDS))).count == MOST_CARDS
    with pytest.raises(InvalidFieldError, match="from 0 to 1024"):
        only(container(gpu=str(MOST_CARDS + 1)))


def test_a_percentage_rounds_down_on_the_card() -> None:
    """50 % of 81920 MiB is 40960; a third of 100 MiB is 33."""
    assert only(container(gpu="1", percent="50")).memory_on(81920) == 40960
    assert only(container(gpu="1", percent="33")).memory_on(100) == 33


def test_memory_wins_over_a_percentage() -> None:
    """Where both are set, MiB count, and the user is told."""
    told: list[str] = []
    spec = SimpleNamespace(containers=[container(gpu="1", memory="3000", percent="50")], init_containers=[])
    request = read_request(spec, SETTINGS, warn=told.append)
    assert request.containers[0].memory_mib == 3000
    assert len(told) == 1
    assert MEMORY in told[0]


def test_default_memory_replaces_the_whole_card() -> None:
    """An administrator's default makes a bare request a share."""
    request = only(container(gpu="1"), settings=AllocationSettings(default_memory_mib=4000, default_cores_percent=5))
    assert (request.memory_mib, request.cores) == (4000, 50)


def test_requests_are_read_where_limits_are_absent() -> None:
    """Limits first, else requests."""
    asked = Container(name="main", resources=Resources(requests={GPU: "2"}))
    assert only(asked).count == 2


def test_containers_keep_their_order_and_lifetimes() -> None:
    """Init containers first, as in HAMi's allocation string; one that restarts always is a sidecar."""
    request = read(
        container("main", gpu="1"),
        init=(container("init", gpu="1"), container("side", restart_policy="Always", memory="1")),
    )
    assert [(each.name, each.kind) for each in request.containers] == [
        ("init", Kind.INIT),
        ("side", Kind.SIDECAR),
        ("main", Kind.REGULAR),
    ]


def test_a_pod_without_our_resources_asks_for_nothing() -> None:
    """A container without GPU keeps its place and asks for no card; `gpu: 0` is a way to say so."""
    assert not read(container())
    assert not read(container(gpu="0"))
    assert len(read(container()).containers) == 1


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
def test_a_bad_value_is_refused_by_field(limits: dict[str, str], field: str) -> None:
    """The message names the path of the field, so that it can be found in the manifest."""
    with pytest.raises(InvalidFieldError) as refused:
        only(container(**limits))
    assert refused.value.field == f'spec.containers[0].resources.limits["{field}"]'


@pytest.mark.parametrize("init", [False, True])
def test_containers_of_one_name_are_refused(init: bool) -> None:  # noqa: FBT001
    """An allocation names its containers, so two of one name would count as one."""
    first, second = container(gpu="1"), container(gpu="1")
    with pytest.raises(InvalidFieldError) as refused:
        read(second, init=(first,)) if init else read(first, second)
    assert refused.value.field == ("spec.containers[0].name" if init else "spec.containers[1].name")
