"""MIG through NVML: instances are reported, and created and destroyed on request."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agent.instance_reconciler import InstanceReconciler
from agent.inventory import MigInstanceError
from agent.nvml.source import NvmlSource
from agent.nvml.visible_devices import VisibleDevices
from agent.report import DeviceReport, NodeReport
from agent.settings import AgentSettings
from allocation.mig import InstanceRequest, MigInstance, Slices
from cluster.gpu_node_status import Status
from tests.agent.conftest import Clock
from tests.nvml.stub import (
    A100_MIG,
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    MIB,
    NOT_SUPPORTED,
    UNKNOWN,
    Hardware,
    MigInstances,
    StubCard,
)

NO_PERMISSION = 4
FUNCTION_NOT_FOUND = 13
MEMORY = 40960 * MIB


@pytest.fixture
def instances(hardware: Hardware) -> MigInstances:
    """An A100 in MIG mode, and one without."""
    hardware.has(
        StubCard("GPU-a", name="NVIDIA A100-SXM4-40GB", memory=MEMORY, numa=1, lines=[*A100_MIG]),
        StubCard("GPU-b", name="NVIDIA A100-SXM4-40GB", memory=MEMORY, lines=["mig 0"]),
    )
    return MigInstances(hardware)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Callable[..., NvmlSource]]:
    """Return a function that opens a source with the given settings."""
    with ExitStack() as stack:

        def opened(**settings: str) -> NvmlSource:
            own = AgentSettings(sysfs=str(tmp_path / "sys"), **settings)  # type: ignore[arg-type]
            return stack.enter_context(NvmlSource(node="n1", settings=own, wake=lambda: None, clock=Clock()))

        yield opened


def devices(source: NvmlSource) -> dict[str, DeviceReport]:
    """Read once and return the devices by UUID."""
    return {device.card.uuid: device for device in source.read()["n1"].devices}


def test_cards_and_instances_are_reported(instances: MigInstances, source: Callable[..., NvmlSource]) -> None:
    """The card has its plain profiles with their placements, and each instance is a device."""
    instances.has("GPU-a 7 0 19 6 1 MIG-1", "GPU-a 2 0 14 0 2 MIG-2")
    found = devices(source())
    assert list(found) == ["GPU-a", "MIG-1", "MIG-2", "GPU-b"]
    whole = found["GPU-a"].card
    assert (whole.mode, whole.healthy, whole.slots, whole.instances_by) == ("mig", True, 7, "administrator")
    assert [(each.name, each.memory_mib, each.cores, each.slice_count) for each in whole.mig_profiles] == [
        ("1g.5gb", 4864, 142, 1),
        ("2g.10gb", 9856, 285, 2),
        ("3g.20gb", 19968, 428, 3),
        ("7g.40gb", 40192, 1000, 7),
    ]
    assert whole.mig_profiles[2].placements == (Slices(0, 4), Slices(4, 4))
    unit = found["MIG-2"].card
    assert (unit.index, unit.memory_mib, unit.cores, unit.slots, unit.numa) == (0, 9856, 285, 1, 1)
    assert unit.model == "NVIDIA A100-SXM4-40GB MIG 2g.10gb"
    assert unit.instance == MigInstance("GPU-a", "2g.10gb", Slices(0, 2), 2, 0)
    assert (found["GPU-b"].card.mode, found["GPU-b"].card.mig_profiles) == ("hami-core", ())


def test_profile_names_are_derived_for_old_drivers(
    hardware: Hardware, instances: MigInstances, source: Callable[..., NvmlSource]
) -> None:
    """They follow from slices and memory."""
    hardware.cards[0].lines.append(f"error nvmlDeviceGetGpuInstanceProfileInfoV {FUNCTION_NOT_FOUND}")
    hardware.cards[0].lines = [line for line in hardware.cards[0].lines if "+me" not in line]
    hardware.write()
    instances.has("GPU-a 7 0 19 6 1 MIG-1")
    found = devices(source())
    assert [each.name for each in found["GPU-a"].card.mig_profiles] == ["1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb"]
    assert found["MIG-1"].card.instance == MigInstance("GPU-a", "1g.5gb", Slices(6, 1), 7, 0)


def test_unprivileged_agent_reports_instances_without_placement(
    hardware: Hardware, instances: MigInstances, source: Callable[..., NvmlSource]
) -> None:
    """Pods can use them all the same."""
    hardware.cards[0].lines.append(f"error nvmlDeviceGetGpuInstanceById {NO_PERMISSION}")
    hardware.write()
    instances.has("GPU-a 7 0 19 6 1 MIG-1")
    unit = devices(source())["MIG-1"].card
    assert (unit.memory_mib, unit.cores, unit.healthy) == (4864, 142, True)
    assert unit.instance == MigInstance("GPU-a", "1g.5gb", None, 7, 0)


def test_compute_instances_that_share_memory_are_unhealthy(
    instances: MigInstances, source: Callable[..., NvmlSource]
) -> None:
    """Otherwise pods would be promised the same memory twice."""
    instances.has("GPU-a 3 0 9 4 4 MIG-1", "GPU-a 3 1 9 4 4 MIG-2")
    found = devices(source())
    assert [found[uuid].card.healthy for uuid in ("GPU-a", "MIG-1", "MIG-2")] == [True, False, False]
    assert "shares the memory" in found["MIG-1"].message


@pytest.mark.parametrize(
    "function", ["nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetGpuInstancePossiblePlacements_v2"]
)
def test_card_with_unreadable_mig_state_is_unhealthy(
    hardware: Hardware, instances: MigInstances, source: Callable[..., NvmlSource], function: str
) -> None:
    """This holds if its MIG state was never read; otherwise the last state stays."""
    hardware.cards[0].lines.append(f"error {function} {UNKNOWN}")
    hardware.write()
    found = devices(source())
    assert list(found) == ["GPU-a", "GPU-b"]
    assert (found["GPU-a"].card.mode, found["GPU-a"].card.healthy) == ("mig", False)
    assert found["GPU-a"].message
    hardware.cards[0].lines.pop()
    hardware.write()
    instances.has("GPU-a 7 0 19 6 1 MIG-1")
    again = source()
    assert devices(again)["MIG-1"].card.healthy
    hardware.cards[0].lines.append(f"error {function} {UNKNOWN}")
    hardware.write()
    assert devices(again)["MIG-1"].card.healthy


def test_instances_of_a_lost_card_are_unhealthy(
    hardware: Hardware, instances: MigInstances, source: Callable[..., NvmlSource]
) -> None:
    """They are still reported, with the message of the card."""
    instances.has("GPU-a 7 0 19 6 1 MIG-1")
    nvml = source()
    assert devices(nvml)["MIG-1"].card.healthy
    hardware.cards[0].lines.append(f"error * {GPU_IS_LOST}")
    hardware.write()
    found = devices(nvml)
    assert [found[uuid].card.healthy for uuid in ("GPU-a", "MIG-1")] == [False, False]
    assert found["MIG-1"].message == found["GPU-a"].message


def test_variable_selects_cards_with_their_instances(
    instances: MigInstances, source: Callable[..., NvmlSource]
) -> None:
    """`CUDA_VISIBLE_DEVICES` of the agent selects physical cards."""
    instances.has("GPU-a 7 0 19 6 1 MIG-1")
    chosen = VisibleDevices("0", node="n1", settings=AgentSettings(), nvml=source()).read()["n1"]
    assert [device.card.uuid for device in chosen.devices] == ["GPU-a", "MIG-1"]
    chosen = VisibleDevices("GPU-b", node="n1", settings=AgentSettings(), nvml=source()).read()["n1"]
    assert [device.card.uuid for device in chosen.devices] == ["GPU-b"]


# ---- requests ------------------------------------------------------------------------------------------------------

REQUEST = InstanceRequest("pod/0", "GPU-a", "2g.10gb", Slices(2, 2))


def test_instance_is_created_and_destroyed_idempotently(
    instances: MigInstances, source: Callable[..., NvmlSource]
) -> None:
    """It gets one compute instance that spans it; other instances are left alone."""
    instances.has("GPU-a 7 0 19 6 1 MIG-1")
    nvml = source(mig_instances_by="agent")
    nvml.read()
    nvml.create("n1", REQUEST)
    nvml.create("n1", REQUEST)
    assert instances.lines()[1:] == ["GPU-a 8 0 14 2 2 MIG-GPU-a-8"]
    assert devices(nvml)["MIG-GPU-a-8"].card.instance == MigInstance("GPU-a", "2g.10gb", Slices(2, 2), 8, 0)
    nvml.destroy("n1", REQUEST)
    nvml.destroy("n1", REQUEST)
    assert instances.lines() == ["GPU-a 7 0 19 6 1 MIG-1"]


def test_partly_created_instance_is_completed_or_destroyed(
    instances: MigInstances, source: Callable[..., NvmlSource]
) -> None:
    """A process may die between creating the GPU instance and its compute instance."""
    nvml = source(mig_instances_by="agent")
    nvml.read()
    instances.has("GPU-a 4 -1 14 2 2 MIG-half")
    nvml.create("n1", REQUEST)
    assert instances.lines() == ["GPU-a 4 0 14 2 2 MIG-half"]
    instances.has("GPU-a 4 -1 14 2 2 MIG-half")
    nvml.destroy("n1", REQUEST)
    assert instances.lines() == []


def test_nvml_refusal_is_raised_with_its_message(
    hardware: Hardware, instances: MigInstances, source: Callable[..., NvmlSource]
) -> None:
    """This includes occupied slices and instances in use."""
    instances.has("GPU-a 1 0 9 0 4 MIG-1")
    nvml = source(mig_instances_by="agent")
    nvml.read()
    with pytest.raises(MigInstanceError, match="nvmlDeviceCreateGpuInstanceWithPlacement"):
        nvml.create("n1", REQUEST)
    with pytest.raises(MigInstanceError, match="no profile 9g"):
        nvml.create("n1", InstanceRequest("pod/0", "GPU-a", "9g.99gb", Slices(0, 8)))
    hardware.cards[0].lines.append("error nvmlComputeInstanceDestroy 19")
    hardware.write()
    with pytest.raises(MigInstanceError, match="nvmlComputeInstanceDestroy"):
        nvml.destroy("n1", InstanceRequest("pod/1", "GPU-a", "3g.20gb", Slices(0, 4)))
    assert instances.lines() == ["GPU-a 1 0 9 0 4 MIG-1"]


class Node:
    """The agent's reconciler with the stub, and what the API server knows of it."""

    def __init__(self, nvml: NvmlSource, published: Status | None = None) -> None:
        self.nvml = nvml
        self.reconciler = InstanceReconciler("n1")
        self.reconciler.restore(published)

    def turn(self, *, publishes: bool = True) -> NodeReport:
        """Read, reconcile, and publish."""
        report = self.nvml.read()["n1"]
        if self.reconciler.reconcile(self.nvml, report):
            report = self.nvml.read()["n1"]
        report = self.reconciler.with_requests(report)
        if publishes:
            self.reconciler.set_published(report)
        return report


@pytest.fixture
def node(instances: MigInstances, source: Callable[..., NvmlSource]) -> Node:
    """A node whose agent creates instances."""
    return Node(source(mig_instances_by="agent"))


def test_request_is_published_before_its_instance_is_created(instances: MigInstances, node: Node) -> None:
    """After a crash the next agent then knows that it owns the instance."""
    node.reconciler.set_requests((REQUEST,))
    report = node.turn(publishes=False)
    assert [each.request for each in report.mig_instances] == [REQUEST]
    node.turn(publishes=False)
    assert instances.lines() == []
    node.turn()
    report = node.turn()
    assert len(instances.lines()) == 1
    (unit,) = (device.card for device in report.devices if device.card.instance is not None)
    assert unit.instance is not None
    assert unit.instance.request_id == "pod/0"


def test_nothing_is_created_or_destroyed_without_a_driver(
    hardware: Hardware, instances: MigInstances, node: Node
) -> None:
    """What was requested meanwhile is done when the driver is back; nothing is reported as failed."""
    node.reconciler.set_requests((REQUEST,))
    for _ in range(3):
        node.turn()
    before = node.turn().mig_instances
    assert len(instances.lines()) == 1
    hardware.lines.append(f"error * {DRIVER_NOT_LOADED}")
    hardware.write()
    node.reconciler.set_requests(())
    assert node.turn().mig_instances == before
    hardware.lines.pop()
    hardware.write()
    node.turn()
    assert node.turn().mig_instances == ()
    assert instances.lines() == []


def test_instance_without_a_request_is_destroyed(instances: MigInstances, node: Node) -> None:
    """Without a list of requests nothing is destroyed, and an administrator's instance never is."""
    instances.has("GPU-a 7 0 19 6 1 MIG-1")
    node.reconciler.set_requests((REQUEST,))
    for _ in range(3):
        node.turn()
    assert len(instances.lines()) == 2
    node.reconciler.set_requests(None)
    node.turn()
    assert len(instances.lines()) == 2
    node.reconciler.set_requests(())
    assert node.turn().mig_instances == ()
    assert instances.lines() == ["GPU-a 7 0 19 6 1 MIG-1"]


@pytest.mark.parametrize("died", ["before creation", "during creation", "after creation"])
@pytest.mark.parametrize("is_requested", [True, False])
def test_restarted_agent_completes_or_destroys_its_instances(
    instances: MigInstances,
    source: Callable[..., NvmlSource],
    node: Node,
    died: str,
    is_requested: bool,  # noqa: FBT001 -- a parameter of the table
) -> None:
    """Whenever the agent died, the published status lets the next one create what is requested and nothing else."""
    node.reconciler.set_requests((REQUEST,))
    published = node.turn().status()
    existing = {
        "before creation": [],
        "during creation": ["GPU-a 4 -1 14 2 2 M"],
        "after creation": ["GPU-a 4 0 14 2 2 M"],
    }[died]
    instances.has(*existing)
    after = Node(source(mig_instances_by="agent"), published)
    after.reconciler.set_requests((REQUEST,) if is_requested else ())
    after.turn()
    assert [line.split()[2:6] for line in instances.lines()] == ([["0", "14", "2", "2"]] if is_requested else [])


@pytest.mark.parametrize(
    ("impossible", "reason"),
    [
        (InstanceRequest("p/0", "GPU-c", "2g.10gb", Slices(2, 2)), "the node has no card GPU-c"),
        (InstanceRequest("p/0", "GPU-b", "2g.10gb", Slices(2, 2)), "not in MIG mode"),
        (InstanceRequest("p/0", "GPU-a", "2g.10gb", Slices(1, 2)), "no placement of profile 2g.10gb at slice 1"),
        (InstanceRequest("p/0", "GPU-a", "1g.5gb", Slices(6, 1)), "not created on request"),
    ],
)
def test_impossible_instance_request_is_refused(
    instances: MigInstances, node: Node, impossible: InstanceRequest, reason: str
) -> None:
    """Nothing is created for it, and nothing is destroyed when it ends."""
    instances.has("GPU-a 7 0 19 6 1 MIG-1")
    node.reconciler.set_requests((impossible,))
    for _ in range(2):
        (status,) = node.turn().mig_instances
    assert status.refused
    assert reason in status.message
    node.reconciler.set_requests(())
    node.turn()
    assert instances.lines() == ["GPU-a 7 0 19 6 1 MIG-1"]


def test_failed_creation_is_reported_and_retried(hardware: Hardware, instances: MigInstances, node: Node) -> None:
    """NVML may succeed later."""
    hardware.cards[0].lines.append(f"error nvmlGpuInstanceCreateComputeInstance {NOT_SUPPORTED}")
    hardware.write()
    node.reconciler.set_requests((REQUEST,))
    node.turn()
    (status,) = node.turn().mig_instances
    assert "nvmlGpuInstanceCreateComputeInstance" in status.message
    assert not status.refused
    hardware.cards[0].lines.pop()
    hardware.write()
    (status,) = node.turn().mig_instances
    assert status.message == ""
    assert instances.lines() == ["GPU-a 1 0 14 2 2 MIG-GPU-a-1"]
