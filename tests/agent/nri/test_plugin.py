"""The agent's plugin and its container runtime: registration, restarts of either, and broken messages."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from agent.nri import plugin as module
from agent.nri.enforcement import Enforcement
from agent.nri.memory_limits import MemoryLimits
from agent.nri.messages_pb2 import Container, LinuxContainer, Mount, Pod
from agent.nri.plugin import Plugin
from agent.nvml.memory_limits import Limit
from agent.nvml.nvml import NvmlError
from agent.settings import AgentSettings
from allocation import names
from allocation.allocation import Allocation, CardShare
from allocation.wire import environment
from tests.agent.support.played_runtime import CreationRefused, PlayedRuntime
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

ALLOCATION = Allocation("n1", {"main": (CardShare("GPU-a", 0, 3000, 300),)})
RUNNING, STOPPED = 3, 4


def pod(name: str = "p", delivery: str = "nri") -> Pod:
    """Return a bound pod, as the runtime knows it."""
    annotations = environment.annotations(ALLOCATION, delivery)  # type: ignore[arg-type]  # of a list of modes
    return Pod(id=f"sandbox-{name}", name=name, namespace="a", annotations=annotations)


def container(of: Pod, name: str = "main", state: int = 0, **annotations: str) -> Container:
    """Return a container of the pod."""
    return Container(id=f"{of.name}-{name}", pod_sandbox_id=of.id, name=name, state=state, annotations=annotations)


class Running:
    """A plugin that runs, and what it has reported."""

    def __init__(self, socket: Path, limits: MemoryLimits | None = None, **paths: str) -> None:
        self.changed = asyncio.Event()
        self.undelivered: list[int] = []
        self.plugin = Plugin(
            socket,
            enforcement=Enforcement(AgentSettings(**{"hami_core_library": "/nowhere", **paths})),
            limits=limits,
            on_change=self.changed.set,
            on_undelivered=self.undelivered.append,
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds after a change."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await self.changed.wait()
                self.changed.clear()


@asynccontextmanager
async def running(socket: Path, limits: MemoryLimits | None = None, **paths: str) -> AsyncIterator[Running]:
    """Run a plugin for the block."""
    made = Running(socket, limits, **paths)
    task = asyncio.create_task(made.plugin.run())
    try:
        yield made
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not made.plugin.is_registered


@pytest.fixture
def socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A socket's path that fits; a pause between attempts that a test need not wait for."""
    monkeypatch.setattr(module, "_LONGEST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(module, "_FIRST_PAUSE_SECONDS", 0.02)
    return tmp_path / "nri.sock"


async def test_it_registers_and_answers_for_each_container(socket: Path) -> None:
    """The runtime calls it for creations only, adds the cards, and notes on the container that it has them."""
    async with PlayedRuntime().listening(socket) as runtime, running(socket) as own:
        side = await runtime.plugin()
        assert side.name == environment.NRI_PLUGIN
        assert await side.configure() == 0b1000
        assert not own.plugin.is_registered
        await side.synchronize([], [])
        await own.until(lambda: own.plugin.is_registered)
        answer = await side.create(pod(), container(pod()))
        assert [each.name for each in answer.adjust.cdi_devices] == ["nvidia.com/gpu=GPU-a"]
        assert dict(answer.adjust.annotations) == {"gpu.scheduling/delivered": "nvidia.com/gpu=GPU-a"}
        assert not (await side.create(pod(), container(pod(), "other"))).HasField("adjust")


async def test_a_refusal_reaches_the_runtime_with_its_reason(socket: Path) -> None:
    """The kubelet shows it as the container's error; the connection lives on."""
    asking = Container(name="main", env=[f"{name}=" for name in environment.ALWAYS_REFERENCED])
    async with PlayedRuntime().listening(socket) as runtime, running(socket):
        side = await runtime.plugin()
        await side.ready()
        with pytest.raises(CreationRefused, match="container main asks for a GPU, and the pod has no allocation"):
            await side.create(Pod(name="p", namespace="a"), asking)
        await side.create(pod(), container(pod()))


async def test_a_container_gets_what_its_isolation_needs(socket: Path, tmp_path: Path) -> None:
    """Mounts and variables in one answer with the cards; a mount of its own in their place is found."""
    library = tmp_path / "libvgpu.so"
    library.write_bytes(b"\x7fELF")
    made = pod()
    made.annotations[names.ISOLATION] = "hami-core"
    limited = container(made)
    limited.env.extend(["CUDA_DEVICE_MEMORY_LIMIT=3000m", "CUDA_DISABLE_CONTROL=true"])
    paths = {"hami_core_library": str(library), "nri_files": str(tmp_path / "files")}
    async with PlayedRuntime().listening(socket) as runtime, running(socket, **paths):
        side = await runtime.plugin()
        await side.ready()
        adjustment = (await side.create(made, limited)).adjust
        assert str(library) in {each.source for each in adjustment.mounts}
        assert {each.key: each.value for each in adjustment.env}["CUDA_DISABLE_CONTROL"] == ""
        limited.mounts.append(Mount(destination="/etc/ld.so.preload"))
        with pytest.raises(CreationRefused, match="pod a/p: container main: its mount /etc/ld.so.preload"):
            await side.create(made, limited)


async def test_a_container_that_nothing_would_limit_is_refused(socket: Path) -> None:
    """The node's library has gone since the agent reported it; the message names pod, container and path."""
    made = pod()
    made.annotations[names.ISOLATION] = "hami-core"
    limited = container(made)
    limited.env.append("CUDA_DEVICE_MEMORY_LIMIT=3000m")
    async with PlayedRuntime().listening(socket) as runtime, running(socket):
        side = await runtime.plugin()
        await side.ready()
        with pytest.raises(CreationRefused, match="pod a/p: container main: isolation hami-core: /nowhere: No such"):
            await side.create(made, limited)


@pytest.mark.parametrize("size", [1, 7, 19])
async def test_messages_in_several_frames_are_put_together(socket: Path, size: int) -> None:
    """The runtime may split them anywhere, in a header, too."""
    async with PlayedRuntime(bytes_per_frame=size).listening(socket) as runtime, running(socket):
        side = await runtime.plugin()
        await side.ready()
        assert (await side.create(pod(), container(pod()))).adjust.cdi_devices


async def test_it_registers_again_after_the_runtime_has_gone(socket: Path) -> None:
    """Also where the socket is missing for a while; meanwhile the node is known not to deliver cards."""
    async with running(socket) as own:
        for _ in range(2):
            async with PlayedRuntime().listening(socket) as runtime:
                side = await runtime.plugin()
                await side.ready()
                await own.until(lambda: own.plugin.is_registered)
                side.close()
                await own.until(lambda: not own.plugin.is_registered)


async def test_a_refused_registration_is_tried_again_and_said_once(
    socket: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another plugin of the same name, or a runtime without NRI, must be found in the log, and not fill it."""
    async with PlayedRuntime(refuses="no plugins here").listening(socket) as runtime, running(socket) as own:
        for _ in range(3):
            await runtime.plugin()
        assert not own.plugin.is_registered
    messages = [each.getMessage() for each in caplog.records if "no plugins here" in each.getMessage()]
    assert messages == [
        f"{socket}: the container runtime does not accept the plugin: registration refused: no plugins here"
    ]


@pytest.mark.parametrize(
    "content",
    [
        b"\x00\x00\x00\x03\x00\x00\x00\x01x",  # no such connection
        b"\x00\x00\x00\x01\xff\xff\xff\xff",  # a frame of 4 GiB
        b"\x00\x00\x00\x01\x00\x00\x00\x0a\xff\xff\xff\xff\x00\x00\x00\x01\x01\x00",  # a message of 4 GiB
        b"\x00\x00\x00\x01\x00\x00\x00\x0a\x00\x00\x00\x00\x00\x00\x00\x01\x09\x00",  # no such kind
        b"\x00\x00\x00\x01\x00\x00\x00\x0b\x00\x00\x00\x01\x00\x00\x00\x01\x01\x00\xff",  # no protobuf
    ],
    ids=["connection", "frame", "message", "kind", "protobuf"],
)
async def test_what_the_protocol_does_not_allow_ends_the_connection(socket: Path, content: bytes) -> None:
    """It neither ends the agent nor fills its memory: it connects again."""
    async with PlayedRuntime().listening(socket) as runtime, running(socket) as own:
        side = await runtime.plugin()
        await side.ready()
        await side.send_raw(content)
        await side.closed_by_plugin()
        await (await runtime.plugin()).ready()
        await own.until(lambda: own.plugin.is_registered)


async def test_containers_that_started_without_their_cards_are_reported(
    socket: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Only those that run, that only this plugin gives cards, and that it did not; in as many parts as there are."""
    first, second, other = pod("first"), pod("second"), pod("other", delivery="cdi")
    parts = [
        ([first], [container(first, state=RUNNING), container(first, "sidecar", state=RUNNING)]),
        ([second], [container(second, state=STOPPED)]),
        ([other], [container(other, state=RUNNING)]),
        ([], [container(second, state=RUNNING, **{"gpu.scheduling/delivered": "nvidia.com/gpu=GPU-a"})]),
    ]
    async with PlayedRuntime().listening(socket) as runtime, running(socket) as own:
        side = await runtime.plugin()
        await side.configure()
        for position, (pods, containers) in enumerate(parts):
            more = position < len(parts) - 1
            assert await side.synchronize(pods, containers, more=more) == more
        await own.until(lambda: own.plugin.is_registered)
    assert own.undelivered == [1]
    (message,) = (each.getMessage() for each in caplog.records if "without its cards" in each.getMessage())
    assert message.startswith("container main of pod a/first started without its cards")


# ---- the driver's limits ---------------------------------------------------------------------------------------------

UID = "01234567-89ab-cdef-0123-456789abcdef"


def limited(name: str = "p", number: int = 1) -> tuple[Pod, Container]:
    """Return a pod with isolation `cuda`, and its container."""
    made = pod(name)
    made.uid = UID
    made.annotations[names.ISOLATION] = "cuda"
    identity = f"{number:064x}"
    linux = LinuxContainer(cgroups_path=f"/kubepods/pod{UID}/{identity}")
    environ = ["NVIDIA_GPU_MEMORY_REQUEST=3000", "NVIDIA_GPU_MEMORY_LIMIT=3000"]
    return made, Container(id=identity, pod_sandbox_id=made.id, name="main", linux=linux, env=environ)


async def test_a_container_is_limited_before_it_starts(socket: Path) -> None:
    """By its control group, which the runtime has created then; of others nothing is asked of the driver."""
    asked: list[tuple[str, dict[str, Limit]]] = []
    limits = MemoryLimits(lambda cgroup, mib: asked.append((cgroup, dict(mib))))
    made, own = limited()
    async with PlayedRuntime().listening(socket) as runtime, running(socket, limits):
        side = await runtime.plugin()
        assert await side.configure() == 0b110_0010_1000
        await side.synchronize([], [])
        await side.start(made, own)
        assert asked == [(f"/sys/fs/cgroup/kubepods/pod{UID}/{own.id}", {"GPU-a": Limit(3000, 3000)})]
        await side.start(pod(), container(pod()))
        await side.start(made, container(made, "other"))
        await side.stop(made, own)
        await side.change(6, *limited(number=2))
        await side.change(11, *limited(number=2))
    assert len(asked) == 2
    assert limits._containers == {}


async def test_a_container_that_the_driver_does_not_limit_is_refused(socket: Path) -> None:
    """The kubelet shows the driver's reason."""

    def refuse(_cgroup: str, _limits: object) -> None:
        raise NvmlError("nvmlDeviceSetMemoryLimits_v1: Insufficient Permissions")

    async with PlayedRuntime().listening(socket) as runtime, running(socket, MemoryLimits(refuse)):
        side = await runtime.plugin()
        await side.ready()
        with pytest.raises(CreationRefused, match="pod a/p: container main: the driver does not set the memory limit"):
            await side.start(*limited())


async def test_containers_that_run_are_limited_when_the_plugin_is_back(socket: Path) -> None:
    """They may have started, or were resized, while it was away; those that have ended are not."""
    limits = MemoryLimits(lambda _cgroup, _limits: None)
    made, own = limited()
    own.state = RUNNING
    ended = Container(id="ended", pod_sandbox_id=made.id, name="main", state=STOPPED)
    async with PlayedRuntime().listening(socket) as runtime, running(socket, limits) as running_plugin:
        side = await runtime.plugin()
        await side.configure()
        await side.synchronize([made], [own, ended])
        await running_plugin.until(lambda: running_plugin.plugin.is_registered)
    assert limits._containers.keys() == {own.id}
