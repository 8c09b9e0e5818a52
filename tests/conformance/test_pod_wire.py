"""1.2: the annotations of a pod; 1.7: the environment of its containers."""

import pytest

from allocation import names, variables
from allocation.allocation import Allocation, CardShare
from allocation.errors import AllocationError
from allocation.request import ContainerRequest, Kind, PodRequest
from allocation.settings import AllocationSettings
from allocation.wire import environment, hami, pod_allocation
from scheduler.objects import Pod
from tests.scheduler.support import builders


def request(name: str, count: int = 1, kind: Kind = Kind.REGULAR) -> ContainerRequest:
    """Return the request of a container for `count` cards."""
    return ContainerRequest(name, kind, name, count, 3000, 0, 300)


def share(uuid: str, index: int = 0, memory: int = 3000, cores: int = 300) -> CardShare:
    """Return a share of a card."""
    return CardShare(uuid, index, memory, cores)


def cards_by_container(text: str, *containers: ContainerRequest) -> dict[str, list[str]]:
    """Return the cards of each container in an allocation string."""
    read = hami.read_allocation(text, PodRequest(containers), node="n1")
    return {name: [share.uuid for share in shares] for name, shares in read.containers.items()}


@pytest.mark.rule("1.2.1")
def test_a_placed_pod_has_the_annotations_that_hamis_tools_read() -> None:
    """They are the node, the time in Unix seconds, and the allocation string."""
    allocation = Allocation("n1", {"main": (share("GPU-a"),)})
    written = environment.hami_annotations(allocation, PodRequest((request("main"),)), unix_seconds=1755757239)
    assert written == {
        "hami.io/vgpu-node": "n1",
        "hami.io/vgpu-time": "1755757239",
        "hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,3000,30:;",
    }


@pytest.mark.rule("1.2.2", "1.2.4")
def test_every_container_has_an_entry() -> None:
    """Init containers come first, in the order of the spec; one without a GPU is only a semicolon."""
    pod_request = PodRequest((request("init", 0, Kind.INIT), request("log", 0), request("main", 2)))
    allocation = Allocation("n1", {"main": (share("GPU-a"), share("GPU-b", 1))})
    assert hami.allocation_string(allocation, pod_request) == ";;GPU-a,NVIDIA,3000,30:GPU-b,NVIDIA,3000,30:;"


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
def test_an_allocation_string_is_read_as_tolerantly_as_hami_does(
    text: str, containers: list[list[hami.Device]]
) -> None:
    """That includes HAMi's older notation for no device."""
    assert hami.decode_devices(text) == containers


@pytest.mark.rule("1.2.3", "1.2.8")
@pytest.mark.parametrize(
    "entry", ["GPU-a,NVIDIA,1", "GPU-a,NVIDIA,x,1", "GPU-a,NVIDIA,-1,1", f"GPU-a,NVIDIA,{2**31},1", f"G,N,1,{2**63}"]
)
def test_an_amount_outside_int32_is_an_error(entry: str) -> None:
    """A negative amount would release what other pods hold, a huge one would overflow the columns."""
    with pytest.raises(AllocationError, match="entry"):
        hami.decode_devices(f"{entry}:;")


@pytest.mark.rule("1.2.8")
def test_an_unreadable_allocation_closes_its_node() -> None:
    """The pod's cards are unknown, so no pod is placed on its node until it is gone."""
    state = builders.state("n1")
    unreadable = builders.pod("old", memory=1, node="n1", annotations={names.HAMI_ALLOCATED: "GPU-n1-0,NVIDIA,-5,0:;"})
    state.set_pod(unreadable)
    assert "old" in state.closed_nodes.now()["n1"].message
    state.drop_pod(unreadable)
    assert state.closed_nodes.now() == {}


@pytest.mark.rule("1.2.5")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GPU-a,NVIDIA,1,1:;", {"main": ["GPU-a"]}),
        (";;GPU-a,NVIDIA,1,1:;", {"main": ["GPU-a"]}),
        ("GPU-a,NVIDIA,1,1:;GPU-b,NVIDIA,1,1:;", {"?0": ["GPU-a"], "main": ["GPU-b"]}),
    ],
)
def test_missing_entries_are_aligned_from_the_end(text: str, expected: dict[str, list[str]]) -> None:
    """HAMi's issue 2899; an entry without a GPU container counts all the same."""
    assert cards_by_container(text, request("init", 0, Kind.INIT), request("log", 0), request("main")) == expected


@pytest.mark.rule("1.2.5")
def test_one_entry_for_two_containers_is_that_of_the_last() -> None:
    """The first one has none that could be known."""
    assert cards_by_container("GPU-a,NVIDIA,1,1:;", request("one"), request("two")) == {"two": ["GPU-a"]}


def charged(text: str, *containers: tuple[str, str]) -> tuple[int, int]:
    """Return memory and slots of GPU-a that HAMi's pod holds; `containers` are names and counts."""
    resources = [{"name": name, "resources": {"limits": {"nvidia.com/gpu": count}}} for name, count in containers]
    pod: Pod = builders.pod("old", node="n1", annotations={names.HAMI_ALLOCATED: text}, containers=resources)
    result = pod_allocation.read(pod.spec, pod.metadata.annotations, node="n1", settings=AllocationSettings())
    assert result is not None
    (charge,) = result[1]
    return charge.memory_mib, charge.slots


@pytest.mark.rule("1.2.7")
def test_each_container_takes_a_slot() -> None:
    """Two containers on one card take two of its slots."""
    text = "GPU-a,NVIDIA,3000,0:;GPU-a,NVIDIA,5000,0:;"
    assert charged(text, ("one", "1"), ("two", "1")) == (8000, 2)


VALUES = environment.values((share("GPU-a", 3, 3000, 300), share("GPU-b", 1, 5000, 300)), "env")


@pytest.mark.rule("1.7.1")
def test_visible_devices_are_uuids() -> None:
    """They are in the order in which the container sees the cards."""
    assert VALUES["NVIDIA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"


@pytest.mark.rule("1.7.2")
def test_memory_limits_are_by_position() -> None:
    """The smallest is the fallback for a card without a limit."""
    limits = {name: value for name, value in VALUES.items() if name.startswith("CUDA_DEVICE_MEMORY_LIMIT")}
    assert limits == {
        "CUDA_DEVICE_MEMORY_LIMIT": "3000m",
        "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
        "CUDA_DEVICE_MEMORY_LIMIT_1": "5000m",
    }


@pytest.mark.rule("1.7.3")
@pytest.mark.parametrize(("cores", "limit"), [(300, "30"), (0, "0"), (1000, "100"), (5, "1")])
def test_the_core_limit_is_percent(cores: int, limit: str) -> None:
    """Fractions are rounded up, because 0 means no limit."""
    assert environment.values((share("GPU-a", cores=cores),))["CUDA_DEVICE_SM_LIMIT"] == limit


@pytest.mark.rule("1.7.4")
def test_without_an_allocation_no_gpu_is_visible() -> None:
    """The kubelet resolves a reference to a missing annotation to an empty string."""
    assert set(environment.resolve(environment.references("main", 1), {}).values()) == {""}


@pytest.mark.rule("1.7.5")
def test_users_cannot_weaken_the_limiter() -> None:
    """They can set only its log level and its priority."""
    for name in ("CUDA_DISABLE_CONTROL", "GPU_CORE_UTILIZATION_POLICY", "CUDA_DEVICE_MEMORY_LIMIT_7"):
        assert variables.is_owned(name)
    for name in ("CUDA_DEVICE_SM_LIMIT_0", "CUDA_OVERSUBSCRIBE", "ACTIVE_OOM_KILLER"):
        assert variables.is_owned(name)
    for name in ("LIBCUDA_LOG_LEVEL", "CUDA_TASK_PRIORITY"):
        assert not variables.is_owned(name)
