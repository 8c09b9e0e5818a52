"""What containers really use, measured against a stub library with NVML's binary interface."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from agent.declared.fleet import FleetFile
from agent.device_use import Measured
from agent.measurement_metrics import MeasurementCollector
from agent.measuring import Measurer
from agent.nvml.source import NvmlSource
from agent.nvml.visible_devices import VisibleDevices
from agent.settings import AgentSettings
from cluster.measurement import MOST_CONTAINERS, ContainerMeasurement, DeviceMeasurement
from lab import wait
from tests.agent.conftest import Clock
from tests.agent.support.containers import ID, OTHER_ID, OTHER_UID, UID, Procfs, cgroup
from tests.nvml.stub import A100_MIG, GPU_IS_LOST, MIB, NOT_SUPPORTED, UNKNOWN, Hardware, MigInstances, cards
from tests.support.patience import PATIENCE_S

GIB = 2**30
FUNCTION_NOT_FOUND = 13


class Measuring:
    """A measurer of the stub's cards with a fake clock and a fake procfs."""

    def __init__(self, nvml: NvmlSource, measurer: Measurer, procfs: Procfs, clock: Clock) -> None:
        self.nvml = nvml
        self.measurer = measurer
        self.procfs = procfs
        self.clock = clock

    def containers(self) -> tuple[ContainerMeasurement, ...]:
        """Measure once and return the containers."""
        self.measurer.measure()
        return self.measurer.last.containers

    def device(self) -> DeviceMeasurement:
        """Measure once and return the only device."""
        self.measurer.measure()
        (device,) = self.measurer.last.devices
        return device

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of a metric of the last measurement."""
        registry = CollectorRegistry()
        registry.register(MeasurementCollector(lambda: self.measurer.last))
        return registry.get_sample_value(name, {"node": "n1", **labels})


@pytest.fixture
def measuring(hardware: Hardware, tmp_path: Path) -> Iterator[Callable[..., Measuring]]:
    """Return a function that reads the inventory once and returns a measurer of it."""
    with ExitStack() as stack:

        def begin(**procfs: str) -> Measuring:
            seen, clock = Procfs(tmp_path / "proc", **procfs), Clock()
            settings = AgentSettings(probe_seconds=5, procfs=str(seen.path))
            nvml = stack.enter_context(NvmlSource(node="n1", settings=settings, wake=lambda: None))
            nvml.read()
            return Measuring(nvml, Measurer(nvml, node="n1", settings=settings, clock=clock), seen, clock)

        yield begin


def has(hardware: Hardware, *lines: str) -> None:
    """Give the stub one card with these directives."""
    (card,) = cards(1)
    card.lines = list(lines)
    hardware.has(card)


def test_memory_and_utilization_are_those_of_the_containers_processes(
    hardware: Hardware, measuring: Callable[..., Measuring]
) -> None:
    """Summed over its processes; one with compute and graphics counts once, MPS clients count as any other."""
    has(
        hardware,
        f"used {9 * GIB}",
        "busy 70",
        f"process 11 {GIB} compute GPU-0",
        f"process 11 {GIB} graphics GPU-0",
        f"process 12 {2 * GIB} mps GPU-0",
        f"process 21 {3 * GIB} compute GPU-0",
        "sample 11 20 1000",
        "sample 11 40 2000",
        "sample 12 10 2000",
    )
    on = measuring()
    on.procfs.runs(11)
    on.procfs.runs(12)
    on.procfs.runs(21, OTHER_UID, OTHER_ID)
    assert on.containers() == (
        ContainerMeasurement(UID, ID, "GPU-0", 3 * GIB, 40, 0.0),
        ContainerMeasurement(OTHER_UID, OTHER_ID, "GPU-0", 3 * GIB, 0, 0.0),
    )
    assert on.measurer.last.devices == (DeviceMeasurement("GPU-0", 9 * GIB, 70, 0),)
    labels = {"device_uuid": "GPU-0", "uid": UID, "container_id": ID}
    assert on.value("tranche_agent_container_memory_used_bytes", **labels) == 3 * GIB
    assert on.value("tranche_agent_container_utilization_ratio", **labels) == 0.4
    assert on.value("tranche_agent_device_memory_used_bytes", device_uuid="GPU-0") == 9 * GIB
    assert on.value("tranche_agent_device_utilization_ratio", device_uuid="GPU-0") == 0.7
    assert on.value("tranche_agent_unmeasured_devices") == 0


def test_container_is_inactive_since_its_kernels_were_last_seen(
    hardware: Hardware, measuring: Callable[..., Measuring]
) -> None:
    """Only newer samples than those of the previous measurement count; a container that is gone is forgotten."""
    process = f"process 11 {GIB} compute GPU-0"
    has(hardware, process, "sample 11 90 1000")
    on = measuring()
    on.procfs.runs(11)
    assert on.containers()[0].utilization_percent == 90
    on.clock.now += 60
    (idle,) = on.containers()
    assert (idle.utilization_percent, idle.inactive_seconds) == (0, 60)
    has(hardware, process, "sample 11 90 1000", "sample 11 1 2000")
    on.clock.now += 60
    assert on.containers()[0].inactive_seconds == 0
    has(hardware)
    assert on.containers() == ()
    has(hardware, process)
    on.clock.now += 60
    assert on.containers()[0].inactive_seconds == 0


def test_driver_counts_containers_with_a_limit_of_its_own(
    hardware: Hardware, measuring: Callable[..., Measuring]
) -> None:
    """What it has counted for the cgroup replaces the sum over processes; without a limit it says nothing."""
    path = f"/sys/fs/cgroup{cgroup()}"
    process = f"process 11 {GIB} compute GPU-0"
    has(hardware, process, f"limit {path} {4 * GIB} {2 * GIB}")
    on = measuring()
    on.procfs.runs(11)
    assert on.containers()[0].memory_bytes == 2 * GIB
    has(hardware, process, f"limit {path} {2**64 - 1} {2 * GIB}")
    assert on.containers()[0].memory_bytes == GIB
    has(hardware, process, f"error nvmlDeviceGetMemoryLimits_v1 {FUNCTION_NOT_FOUND}")
    assert on.containers()[0].memory_bytes == GIB


def test_what_the_driver_does_not_say_is_unknown(hardware: Hardware, measuring: Callable[..., Measuring]) -> None:
    """Neither memory nor utilization becomes 0, and neither has a series."""
    has(hardware, "busy -1", "samples none", "process 11 -1 compute GPU-0", f"process 11 {GIB} graphics GPU-0")
    on = measuring()
    on.procfs.runs(11)
    assert on.containers() == (ContainerMeasurement(UID, ID, "GPU-0", None, None, None),)
    assert on.measurer.last.devices[0].utilization_percent is None
    labels = {"device_uuid": "GPU-0", "uid": UID, "container_id": ID}
    assert on.value("tranche_agent_container_memory_used_bytes", **labels) is None
    assert on.value("tranche_agent_container_utilization_ratio", **labels) is None


def test_without_the_hosts_pid_namespace_all_containers_are_unknown(
    hardware: Hardware, measuring: Callable[..., Measuring]
) -> None:
    """NVML lists no process of other PID namespaces, which is not the same as no use. The card's sums are known."""
    has(hardware, f"used {GIB}")
    on = measuring(pid_namespace="pid:[4026532198]")
    assert on.containers() == ()
    assert "manifests/usage" in on.measurer.last.problem
    assert on.device().memory_used_bytes == GIB
    assert on.value("tranche_agent_unmeasured_devices") == 1


@pytest.mark.parametrize("code", [GPU_IS_LOST, NOT_SUPPORTED, UNKNOWN])
def test_card_whose_processes_cannot_be_read_is_unknown_alone(
    hardware: Hardware, measuring: Callable[..., Measuring], code: int
) -> None:
    """The other cards are measured."""
    first, second = cards(2)
    first.lines = [f"error nvmlDeviceGetComputeRunningProcesses_v3 {code}"]
    second.lines = [f"process 11 {GIB} compute GPU-1"]
    hardware.has(first, second)
    on = measuring()
    on.procfs.runs(11)
    assert [each.device for each in on.containers()] == ["GPU-1"]
    problems = {device.uuid: device.problem for device in on.measurer.last.devices}
    assert "nvmlDeviceGetComputeRunningProcesses" in problems["GPU-0"]
    assert not problems["GPU-1"]
    assert on.value("tranche_agent_unmeasured_devices") == 1


def test_processes_outside_of_pods_are_counted_for_the_card(
    hardware: Hardware, measuring: Callable[..., Measuring]
) -> None:
    """Those of the host, and those that ended after NVML listed them: of no container."""
    has(hardware, f"process 1 {GIB} compute GPU-0", f"process 9 {GIB} compute GPU-0")
    on = measuring()
    on.procfs.has(1, "0::/system.slice/Xorg.service\n")
    assert on.device().outside_bytes == 2 * GIB
    assert on.containers() == ()


def test_mig_instances_are_measured_themselves(hardware: Hardware, measuring: Callable[..., Measuring]) -> None:
    """By their own UUIDs; NVML has no utilization of them."""
    has(hardware, *A100_MIG, f"process 11 {GIB} compute MIG-a", "sample 11 90 1000")
    MigInstances(hardware).has("GPU-0 1 0 19 0 1 MIG-a", "GPU-0 2 0 19 1 1 MIG-b")
    on = measuring()
    on.procfs.runs(11)
    assert on.containers() == (ContainerMeasurement(UID, ID, "MIG-a", GIB, None, None),)
    assert [device.uuid for device in on.measurer.last.devices] == ["MIG-a", "MIG-b"]


def test_hung_card_keeps_no_other_card_waiting_for_long(hardware: Hardware, tmp_path: Path) -> None:
    """It is unknown until it responds, and NVML is not closed while a call is in progress."""
    first, second = cards(2)
    hardware.has(first, second)
    settings = AgentSettings(probe_seconds=0.2, procfs=str(Procfs(tmp_path / "proc").path))
    with NvmlSource(node="n1", settings=settings, wake=lambda: None) as nvml:
        nvml.read()
        measurer = Measurer(nvml, node="n1", settings=settings)
        first.lines = ["hang nvmlDeviceGetComputeRunningProcesses_v3"]
        hardware.write()
        measurer.measure()
        assert "has not responded" in {each.uuid: each.problem for each in measurer.last.devices}["GPU-0"]
        first.lines = []
        hardware.write()

        def is_measured() -> bool:
            measurer.measure()
            return not any(device.problem for device in measurer.last.devices)

        wait.until(is_measured, what="a measurement of every card", timeout_s=PATIENCE_S)


def test_nvml_is_not_closed_during_a_measurement(hardware: Hardware, tmp_path: Path) -> None:
    """A lost card has NVML opened again, by which a new one is found, but not while a call is in progress."""
    first, lost, new = cards(3)
    hardware.has(first, lost)
    settings = AgentSettings(probe_seconds=0.2, quiet_seconds=1, procfs=str(Procfs(tmp_path / "proc").path))
    clock = Clock()
    with NvmlSource(node="n1", settings=settings, wake=lambda: None, clock=clock) as nvml:

        def listed() -> set[str]:
            clock.now += 2
            nvml.read()
            clock.now += 2
            return {device.card.uuid for device in nvml.read()["n1"].devices}

        assert listed() == {"GPU-0", "GPU-1"}
        first.lines = ["hang nvmlDeviceGetComputeRunningProcesses_v3"]
        hardware.write()
        nvml.measure()
        hardware.has(first, new)
        assert listed() == {"GPU-0", "GPU-1"}
        first.lines = []
        hardware.write()
        wait.until(lambda: "GPU-0" not in nvml.measure().unread, what="the call to return", timeout_s=PATIENCE_S)
        assert listed() == {"GPU-0", "GPU-1", "GPU-2"}


def test_more_containers_than_can_be_reported_are_unknown(
    hardware: Hardware, measuring: Callable[..., Measuring], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of them would look as if the others used nothing."""
    assert MOST_CONTAINERS >= 16 * 64
    monkeypatch.setattr("agent.measuring.MOST_CONTAINERS", 1)
    has(hardware, f"process 11 {MIB} compute GPU-0", f"process 12 {MIB} compute GPU-0")
    on = measuring()
    on.procfs.runs(11)
    on.procfs.runs(12, OTHER_UID)
    assert on.containers() == ()
    assert on.measurer.last.problem


def test_only_cards_that_the_variable_names_are_measured(
    hardware: Hardware, measuring: Callable[..., Measuring], tmp_path: Path
) -> None:
    """The others are not served by this agent."""
    hardware.has(*cards(2))
    on = measuring()
    settings = AgentSettings(procfs=str(tmp_path / "proc"))
    visible = VisibleDevices("1", node="n1", settings=settings, nvml=on.nvml)
    visible.read()
    measurer = Measurer(visible, node="n1", settings=settings)
    measurer.measure()
    assert [device.uuid for device in measurer.last.devices] == ["GPU-1"]


def test_declared_cards_are_not_measured(tmp_path: Path) -> None:
    """Nothing runs on them, and that is said."""
    (tmp_path / "fleet.yaml").write_text("n1: {count: 1, memoryMiB: 1000}")
    measurer = Measurer(FleetFile(tmp_path / "fleet.yaml"), node="n1", settings=AgentSettings())
    measurer.measure()
    assert "fleet file" in measurer.last.problem


async def test_a_bug_in_a_measurement_does_not_end_the_agent(
    hardware: Hardware, measuring: Callable[..., Measuring], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is logged, and the next measurement is made."""
    has(hardware, f"process 11 {GIB} compute GPU-0")
    on = measuring()
    settings = AgentSettings(measure_seconds=0.01, procfs=str(on.procfs.path))
    measurer = Measurer(on.nvml, node="n1", settings=settings)
    failed = asyncio.Event()
    measure = on.nvml.measure

    def fail_once() -> Measured:
        if failed.is_set():
            return measure()
        failed.set()
        raise ZeroDivisionError

    monkeypatch.setattr(on.nvml, "measure", fail_once)
    running = asyncio.create_task(measurer.run())
    async with asyncio.timeout(PATIENCE_S):
        await failed.wait()
        while not measurer.last.devices:  # noqa: ASYNC110 -- a thread measures
            await asyncio.sleep(0.01)
    running.cancel()


async def test_nothing_is_measured_when_switched_off(hardware: Hardware, measuring: Callable[..., Measuring]) -> None:
    """The reason is part of the measurement."""
    hardware.has(*cards(1))
    measurer = Measurer(measuring().nvml, node="n1", settings=AgentSettings(measure_seconds=0))
    await measurer.run()
    assert "measure_seconds" in measurer.last.problem
