"""1.2: what a pod carries; 1.7: what its containers are told."""

import pytest

from allocation import environment, hami, holding, names
from allocation.allocation import Allocation, CardShare
from allocation.errors import AllocationError
from allocation.request import ContainerRequest, Kind, PodRequest
from allocation.settings import AllocationSettings
from scheduler.objects import Pod
from tests.scheduler import builders


def ask(name: str, count: int = 1, kind: Kind = Kind.REGULAR) -> ContainerRequest:
    """Answer a container that asks for `count` cards."""
    return ContainerRequest(name, kind, name, count, 3000, 0, 300)


def share(uuid: str, index: int = 0, memory: int = 3000, cores: int = 300) -> CardShare:
    """Answer a share of a card."""
    return CardShare(uuid, index, memory, cores)


def names_in(text: str, *containers: ContainerRequest) -> dict[str, list[str]]:
    """Answer which cards each container has according to an allocation string."""
    read = hami.read_allocation(text, PodRequest(containers), node="n1")
    return {name: [share.uuid for share in shares] for name, shares in read.containers.items()}


@pytest.mark.rule("1.2.1")
def test_a_placed_pod_is_seen_by_hamis_tools() -> None:
    """Node, time in Unix seconds, and the allocation string."""
    allocation = Allocation("n1", {"main": (share("GPU-a"),)})
    written = environment.hami_annotations(allocation, PodRequest((ask("main"),)), unix_seconds=1755757239)
    assert written == {
        "hami.io/vgpu-node": "n1",
        "hami.io/vgpu-time": "1755757239",
        "hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,3000,30:;",
    }


@pytest.mark.rule("1.2.2", "1.2.4")
def test_every_container_has_its_place() -> None:
    """Init containers first, in the order of the spec; one without GPU is a bare semicolon."""
    request = PodRequest((ask("init", 0, Kind.INIT), ask("log", 0), ask("main", 2)))
    allocation = Allocation("n1", {"main": (share("GPU-a"), share("GPU-b", 1))})
    assert hami.allocation_string(allocation, request) == ";;GPU-a,NVIDIA,3000,30:GPU-b,NVIDIA,3000,30:;"


@pytest.mark.rule("1.2.3", "1.2.6")
@pytest.mark.parametrize(
    ("text", "containers"),
    [
        ("GPU-a,NVIDIA,3000,0:;GPU-a,NVIDIA,5000,0:;", [[("GPU-a", 3000, 0)], [("GPU-a", 5000, 0)]]),
        (";;", [[], []]),
        ("GPU-a,NVIDIA,1,2,more,fields:;", [[("GPU-a", 1, 2)]]),
        ("noise:GPU-a,NVIDIA,1,2:;", [[("GPU-a", 1, 2)]]),
        (",,0,0:;GPU-a,NVIDIA,1,2:;", [[], [("GPU-a", 1, 2)]]),
    ],
)
def test_a_reader_is_as_tolerant_as_hamis(text: str, containers: list[list[hami.Device]]) -> None:
    """And knows its older word for no device."""
    assert hami.decode_devices(text) == containers


@pytest.mark.rule("1.2.3", "1.2.8")
@pytest.mark.parametrize(
    "entry", ["GPU-a,NVIDIA,1", "GPU-a,NVIDIA,x,1", "GPU-a,NVIDIA,-1,1", f"GPU-a,NVIDIA,{2**31},1", f"G,N,1,{2**63}"]
)
def test_what_no_number_of_hami_can_be_is_refused(entry: str) -> None:
    """A negative amount would free what others hold, a huge one would overflow the columns."""
    with pytest.raises(AllocationError, match="entry"):
        hami.decode_devices(f"{entry}:;")


@pytest.mark.rule("1.2.8")
def test_an_unreadable_allocation_closes_its_node() -> None:
    """What the pod uses is unknown, so nothing is placed beside it until it is gone."""
    state = builders.state("n1")
    ill = builders.pod("old", memory=1, node="n1", annotations={names.HAMI_ALLOCATED: "GPU-n1-0,NVIDIA,-5,0:;"})
    state.set_pod(ill)
    assert "old" in state.closed()["n1"]
    state.drop_pod(ill)
    assert state.closed() == {}


@pytest.mark.rule("1.2.5")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GPU-a,NVIDIA,1,1:;", {"main": ["GPU-a"]}),
        (";;GPU-a,NVIDIA,1,1:;", {"main": ["GPU-a"]}),
        ("GPU-a,NVIDIA,1,1:;GPU-b,NVIDIA,1,1:;", {"?0": ["GPU-a"], "main": ["GPU-b"]}),
    ],
)
def test_lost_places_are_found(text: str, expected: dict[str, list[str]]) -> None:
    """HAMi's issue 2899; an entry that nobody asked for counts all the same."""
    assert names_in(text, ask("init", 0, Kind.INIT), ask("log", 0), ask("main")) == expected


def settled(text: str, *containers: tuple[str, str]) -> tuple[int, int]:
    """Answer memory and slots that a pod of HAMi's, its containers' names and counts given, holds of GPU-a."""
    resources = [{"name": name, "resources": {"limits": {"nvidia.com/gpu": count}}} for name, count in containers]
    pod: Pod = builders.pod("old", node="n1", annotations={names.HAMI_ALLOCATED: text}, containers=resources)
    held = holding.of_pod(pod.spec, pod.metadata.annotations, node="n1", settings=AllocationSettings())
    assert held is not None
    (charge,) = held[1]
    return charge.memory_mib, charge.slots


@pytest.mark.rule("1.2.7")
def test_slots_follow_from_positions() -> None:
    """Two containers on one card take two of its slots."""
    text = "GPU-a,NVIDIA,3000,0:;GPU-a,NVIDIA,5000,0:;"
    assert settled(text, ("one", "1"), ("two", "1")) == (8000, 2)


VALUES = environment.values((share("GPU-a", 3, 3000, 300), share("GPU-b", 1, 5000, 300)))


@pytest.mark.rule("1.7.1")
def test_visible_devices_are_uuids() -> None:
    """In the order in which the container sees them."""
    assert VALUES["NVIDIA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"


@pytest.mark.rule("1.7.2")
def test_memory_limits_by_position() -> None:
    """And the smallest as the net for a card that has none."""
    limits = {name: value for name, value in VALUES.items() if name.startswith("CUDA_DEVICE_MEMORY_LIMIT")}
    assert limits == {
        "CUDA_DEVICE_MEMORY_LIMIT": "3000m",
        "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
        "CUDA_DEVICE_MEMORY_LIMIT_1": "5000m",
    }


@pytest.mark.rule("1.7.3")
@pytest.mark.parametrize(("cores", "limit"), [(300, "30"), (0, "0"), (1000, "100"), (5, "1")])
def test_the_core_limit_is_percent(cores: int, limit: str) -> None:
    """A part of a percent is rounded up: 0 would be no limit."""
    assert environment.values((share("GPU-a", cores=cores),))["CUDA_DEVICE_SM_LIMIT"] == limit


@pytest.mark.rule("1.7.4")
def test_before_the_decision_nothing_is_visible() -> None:
    """The kubelet resolves a reference to nothing as an empty text."""
    assert set(environment.resolve(environment.references("main", 1), {}).values()) == {""}


@pytest.mark.rule("1.7.5")
def test_the_limiters_switches_are_no_users() -> None:
    """What only tunes the limiter is the user's own."""
    for name in ("CUDA_DISABLE_CONTROL", "GPU_CORE_UTILIZATION_POLICY", "CUDA_DEVICE_MEMORY_LIMIT_7"):
        assert environment.is_owned(name)
    for name in ("CUDA_OVERSUBSCRIBE", "LIBCUDA_LOG_LEVEL", "CUDA_TASK_PRIORITY", "ACTIVE_OOM_KILLER"):
        assert not environment.is_owned(name)
