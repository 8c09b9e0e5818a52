"""Which isolations a node offers, found out by asking, and the reason for each that it does not offer."""

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent import isolation
from agent.report import NodeReport
from agent.settings import AgentSettings
from allocation.delivery import Delivery, NodeDelivery, Toolkit
from allocation.isolation import Isolation
from allocation.node_isolation import LONGEST_MESSAGE, NodeIsolation
from cluster.gpu_node_status import GpuNodeStatus
from cluster.metadata import ObjectMeta

NEW = Toolkit(mode="auto", version="1.20.1")
NEW_DRIVER = "615.12.03"


@pytest.fixture
def find(tmp_path: Path) -> Callable[..., NodeIsolation]:
    """Look for the isolations of a node on which the driver's own limits work, and nothing else."""
    controllers = tmp_path / "sys/fs/cgroup/cgroup.controllers"
    controllers.parent.mkdir(parents=True)
    controllers.touch()

    def run(
        *,
        driver: str = NEW_DRIVER,
        toolkit: Toolkit | None = NEW,
        functions: tuple[str, ...] = ("nvmlDeviceSetMemoryLimits_v1",),
        mode: Delivery = "nri",
        is_registered: bool | None = None,
        **settings: Any,
    ) -> NodeIsolation:
        paths = {"hami_core_library": "", "mps_pipe_directory": "", "sysfs": str(tmp_path / "sys")}
        return isolation.find(
            AgentSettings(**{**paths, **settings}),
            driver_version=driver,
            delivery=NodeDelivery(mode, toolkit, is_registered=is_registered),
            has_function=lambda name: name in functions,
        )

    return run


def problems(found: NodeIsolation) -> Mapping[str, str]:
    """Return the reason for each isolation that is not offered."""
    assert {each.isolation for each in found.problems}.isdisjoint(found.offered)
    assert all(len(each.message) <= LONGEST_MESSAGE for each in found.problems)
    return {each.isolation: each.message for each in found.problems}


# ---- HAMi-core -------------------------------------------------------------------------------------------------------


def test_hami_core_is_offered_if_its_library_can_be_read(find: Callable[..., NodeIsolation], tmp_path: Path) -> None:
    """A container without the library would start without its limit, or not at all."""
    library = tmp_path / "libvgpu.so"
    assert problems(find(hami_core_library=str(library)))["hami-core"] == f"{library}: No such file or directory"
    library.mkdir()
    assert problems(find(hami_core_library=str(library)))["hami-core"] == f"{library}: Is a directory"
    library.rmdir()
    library.write_text("#!/bin/sh")
    assert problems(find(hami_core_library=str(library)))["hami-core"] == f"{library} is not a shared library"
    library.write_bytes(b"\x7fELF\x02\x01")
    assert Isolation.HAMI_CORE in find(hami_core_library=str(library)).offered


# ---- MPS -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def pipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipe directory, whose path is short: that of a socket has at most 107 characters."""
    monkeypatch.chdir(tmp_path)
    Path("pipes").mkdir()
    return Path("pipes")


@pytest.fixture(params=[socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def daemon(pipes: Path, request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    """A daemon that listens on its control socket."""
    with socket.socket(socket.AF_UNIX, request.param) as server:
        server.bind(str(pipes / "control"))
        server.listen()
        yield server


def test_mps_is_offered_while_its_daemon_answers(
    find: Callable[..., NodeIsolation], pipes: Path, daemon: socket.socket
) -> None:
    """Its socket stays in the directory when it ends, so that the file alone says nothing."""
    assert Isolation.MPS in find(mps_pipe_directory=str(pipes)).offered
    daemon.close()
    found = find(mps_pipe_directory=str(pipes))
    assert problems(found)["mps"] == "pipes/control: no MPS control daemon listens"


def test_mps_with_a_control_pipe_is_offered_while_it_is_read(find: Callable[..., NodeIsolation], pipes: Path) -> None:
    """The daemon's directory has sockets and named pipes, by its version."""
    os.mkfifo(pipes / "control")
    assert problems(find(mps_pipe_directory=str(pipes)))["mps"] == "pipes/control: no MPS control daemon listens"
    reader = os.open(pipes / "control", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert Isolation.MPS in find(mps_pipe_directory=str(pipes)).offered
    finally:
        os.close(reader)


def test_mps_without_a_control_socket_is_not_offered(find: Callable[..., NodeIsolation], pipes: Path) -> None:
    """A directory says nothing; neither does a file of the name."""
    assert problems(find(mps_pipe_directory=str(pipes)))["mps"] == "pipes/control: No such file or directory"
    (pipes / "control").touch()
    assert problems(find(mps_pipe_directory=str(pipes)))["mps"] == "pipes/control: no MPS control daemon listens"


# ---- the driver ------------------------------------------------------------------------------------------------------


def test_cuda_is_offered_if_driver_kernel_and_toolkit_can_limit(find: Callable[..., NodeIsolation]) -> None:
    """Nothing else is needed on the node, and nothing in the container."""
    assert find().offered == {Isolation.CUDA}
    for version in ("1.20.1", "v1.20.2-rc.1", "1.21.0", "2.0.0"):
        assert Isolation.CUDA in find(toolkit=Toolkit(mode="cdi", version=version)).offered
    for driver in ("615", "615.1", "700.00.01"):
        assert Isolation.CUDA in find(driver=driver).offered


@pytest.mark.parametrize(
    ("lacks", "words"),
    [
        ({"driver": "595.91"}, "the driver must be 615 or newer, and is 595.91"),
        ({"driver": ""}, "the driver must be 615 or newer, and is unknown"),
        ({"driver": "odd"}, "the driver must be 615 or newer, and is odd"),
        ({"functions": ()}, "the NVML of driver 615.12.03 has no nvmlDeviceSetMemoryLimits_v1"),
        ({"sysfs": "/nowhere"}, "the node has no control groups of version 2"),
        ({"toolkit": None}, "the agent does not see NVIDIA's container toolkit"),
        ({"toolkit": Toolkit("auto", "1.20.0")}, "container toolkit must be 1.20.1 or newer, and is 1.20.0"),
        ({"toolkit": Toolkit("auto", "")}, "container toolkit must be 1.20.1 or newer, and is unknown"),
        ({"toolkit": Toolkit("legacy", "1.20.1")}, "toolkit 1.20.1 in mode legacy sets no limits"),
    ],
)
def test_cuda_is_not_offered_where_a_container_would_not_start(
    find: Callable[..., NodeIsolation], lacks: dict[str, Any], words: str
) -> None:
    """The toolkit fails the container if it cannot set the limit; the first thing that is missing is named."""
    assert words in problems(find(**lacks))["cuda"]


def test_cuda_is_offered_without_a_toolkit_where_the_agent_limits(find: Callable[..., NodeIsolation]) -> None:
    """While the container runtime asks it; what else the driver needs is needed there, too."""
    own: dict[str, Any] = {"memory_limits": "agent", "toolkit": None}
    assert Isolation.CUDA in find(**own, is_registered=True).offered
    for other in ({"is_registered": False}, {}, {"mode": "device-plugin", "is_registered": True}):
        assert "is not registered with" in problems(find(**own, **other))["cuda"]
    assert "must be 615 or newer" in problems(find(**own, is_registered=True, driver="595.91"))["cuda"]


def test_kai_gpu_fractioning_leaves_room_for_no_other_daemon(
    find: Callable[..., NodeIsolation], tmp_path: Path
) -> None:
    """It mounts the pipes of its own; the driver's limits are those that it sets itself."""
    library = tmp_path / "libvgpu.so"
    library.write_bytes(b"\x7fELF")
    assert Isolation.HAMI_CORE in find(hami_core_library=str(library), mode="cdi").offered
    found = find(hami_core_library=str(library), mode="nvfractions")
    assert found.offered == {Isolation.CUDA}
    assert "by its own daemon of MPS" in problems(found)["mps"] == problems(found)["hami-core"]


# ---- in the report ---------------------------------------------------------------------------------------------------


def test_empty_settings_withhold_an_isolation(find: Callable[..., NodeIsolation]) -> None:
    """An administrator can withhold one that is installed."""
    assert problems(find()) == {
        "hami-core": "agent.hami_core_library is empty: withheld",
        "mps": "agent.mps_pipe_directory is empty: withheld",
    }


def test_report_says_what_is_offered_and_why_the_rest_is_not(find: Callable[..., NodeIsolation]) -> None:
    """The status has the words of the API; the scheduler reads from it what the agent found."""
    found = find(driver="595.91")
    status = NodeReport("n1", isolation=found).status()
    assert status.isolation == ["none"]
    sent = msgspec.json.decode(msgspec.json.encode(status))
    assert [each["isolation"] for each in sent["isolationProblems"]] == ["hami-core", "mps", "cuda"]
    read = GpuNodeStatus(ObjectMeta(name="n1"), msgspec.convert(sent, type(status))).inventory().isolation
    assert read.rejection(Isolation.CUDA) == "isolation cuda: the driver must be 615 or newer, and is 595.91"
    status = NodeReport("n1", isolation=find()).status()
    assert status.isolation == ["none", "cuda"]
