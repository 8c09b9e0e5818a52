"""MIG by NVML: what a card is divided into is reported, further instances are made and destroyed on a wish."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agent.inventory import PartitionError
from agent.nvml_source import NvmlSource
from agent.partitions import Partitions
from agent.report import DeviceReport, NodeReport
from agent.settings import AgentSettings
from agent.visible_devices import VisibleDevices
from allocation.mig import MigInstance, Slices, Wish
from cluster.gpu_node_status import Status
from tests.agent.conftest import Clock
from tests.nvml.stub import A100_MIG, GPU_IS_LOST, MIB, NOT_SUPPORTED, UNKNOWN, Hardware, MigInstances, StubCard

NO_PERMISSION = 4
FUNCTION_NOT_FOUND = 13
MEMORY = 40960 * MIB


@pytest.fixture
def instances(hardware: Hardware) -> MigInstances:
    """An A100 in MIG mode, and one that is not."""
    hardware.has(
        StubCard("GPU-a", name="NVIDIA A100-SXM4-40GB", memory=MEMORY, numa=1, lines=[*A100_MIG]),
        StubCard("GPU-b", name="NVIDIA A100-SXM4-40GB", memory=MEMORY, lines=["mig 0"]),
    )
    return MigInstances(hardware)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Callable[..., NvmlSource]]:
    """Open sources with settings of one's own."""
    with ExitStack() as stack:

        def opened(**settings: str) -> NvmlSource:
            chosen = AgentSettings(sysfs=str(tmp_path / "sys"), **settings)  # type: ignore[arg-type]
            return stack.enter_context(NvmlSource(node="n1", settings=chosen, wake=lambda: None, clock=Clock()))

        yield opened


def devices(source: NvmlSource) -> dict[str, DeviceReport]:
    """Read once and answer the devices by UUID."""
    return {device.card.uuid: device for device in source.read()["n1"].devices}


def test_cards_and_instances_are_reported(instances: MigInstances, source: Callable[..., NvmlSource]) -> None:
    """The card with its plain profiles and their places, each instance as a unit of its own, the other card as ever."""
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


def test_an_old_driver_names_no_profiles(
    hardware: Hardware, instances: MigInstances, source: Callable[..., NvmlSource]
) -> None:
    """Their names follow from slices and memory then."""
    hardware.cards[0].lines.append(f"error nvmlDeviceGetGpuInstanceProfileInfoV {FUNCTION_NOT_FOUND}")
    hardware.cards[0].lines = [line for line in hardware.cards[0].lines if "+me" not in line]
    hardware.write()
    instances.has("GPU-a 7 0 19 6 1 MIG-1")
    found = devices(source())
    assert [each.name for each in found["GPU-a"].card.mig_profiles] == ["1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb"]
    assert found["MIG-1"].card.instance == MigInstance("GPU-a", "1g.5gb", Slices(6, 1), 7, 0)


def test_a_process_without_privileges_sees_instances_but_not_their_places(
    hardware: Hardware, instances: MigInstances, source: Callable[..., NvmlSource]
) -> None:
    """They can be given to pods all the same."""
    hardware.cards[0].lines.append(f"error nvmlDeviceGetGpuInstanceById {NO_PERMISSION}")
    hardware.write()
    instances.has("GPU-a 7 0 19 6 1 MIG-1")
    unit = devices(source())["MIG-1"].card
    assert (unit.memory_mib, unit.cores, unit.healthy) == (4864, 142, True)
    assert unit.instance == MigInstance("GPU-a", "1g.5gb", None, 7, 0)


def test_compute_instances_that_share_memory_are_kept_from_pods(
    instances: MigInstances, source: Callable[..., NvmlSource]
) -> None:
    """Each would be promised memory that the other has, too."""
    instances.has("GPU-a 3 0 9 4 4 MIG-1", "GPU-a 3 1 9 4 4 MIG-2")
    found = devices(source())
    assert [found[uuid].card.healthy for uuid in ("GPU-a", "MIG-1", "MIG-2")] == [True, False, False]
    assert "shares the memory" in found["MIG-1"].message


@pytest.mark.parametrize(
    "function", ["nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetGpuInstancePossiblePlacements_v2"]
)
def test_a_card_that_cannot_be_asked_is_not_used(
    hardware: Hardware, instances: MigInstances, source: Callable[..., NvmlSource], function: str
) -> None:
    """From the start it is unhealthy, with the reason; what was known before stays."""
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


def test_an_ill_card_takes_its_instances_along(
    hardware: Hardware, instances: MigInstances, source: Callable[..., NvmlSource]
) -> None:
    """A card that is lost is reported with the instances that it had, all of them unhealthy."""
    instances.has("GPU-a 7 0 19 6 1 MIG-1")
    nvml = source()
    assert devices(nvml)["MIG-1"].card.healthy
    hardware.cards[0].lines.append(f"error * {GPU_IS_LOST}")
    hardware.write()
    found = devices(nvml)
    assert [found[uuid].card.healthy for uuid in ("GPU-a", "MIG-1")] == [False, False]
    assert found["MIG-1"].message == found["GPU-a"].message


def test_the_variable_names_cards_and_means_their_instances(
    instances: MigInstances, source: Callable[..., NvmlSource]
) -> None:
    """`CUDA_VISIBLE_DEVICES` of the agent chooses physical cards."""
    instances.has("GPU-a 7 0 19 6 1 MIG-1")
    chosen = VisibleDevices("0", node="n1", settings=AgentSettings(), nvml=source()).read()["n1"]
    assert [device.card.uuid for device in chosen.devices] == ["GPU-a", "MIG-1"]
    chosen = VisibleDevices("GPU-b", node="n1", settings=AgentSettings(), nvml=source()).read()["n1"]
    assert [device.card.uuid for device in chosen.devices] == ["GPU-b"]


# ---- on a wish -----------------------------------------------------------------------------------------------------

WISH = Wish("pod/0", "GPU-a", "2g.10gb", Slices(2, 2))


def test_an_instance_is_made_and_destroyed(instances: MigInstances, source: Callable[..., NvmlSource]) -> None:
    """With one compute instance over all of it; doing either twice does it once; others are left alone."""
    instances.has("GPU-a 7 0 19 6 1 MIG-1")
    nvml = source(mig_instances_by="agent")
    nvml.read()
    nvml.create("n1", WISH)
    nvml.create("n1", WISH)
    assert instances.lines()[1:] == ["GPU-a 8 0 14 2 2 MIG-GPU-a-8"]
    assert devices(nvml)["MIG-GPU-a-8"].card.instance == MigInstance("GPU-a", "2g.10gb", Slices(2, 2), 8, 0)
    nvml.destroy("n1", WISH)
    nvml.destroy("n1", WISH)
    assert instances.lines() == ["GPU-a 7 0 19 6 1 MIG-1"]


def test_what_was_left_half_made_is_finished_or_removed(
    instances: MigInstances, source: Callable[..., NvmlSource]
) -> None:
    """A process may die between the GPU instance and its compute instance."""
    nvml = source(mig_instances_by="agent")
    nvml.read()
    instances.has("GPU-a 4 -1 14 2 2 MIG-half")
    nvml.create("n1", WISH)
    assert instances.lines() == ["GPU-a 4 0 14 2 2 MIG-half"]
    instances.has("GPU-a 4 -1 14 2 2 MIG-half")
    nvml.destroy("n1", WISH)
    assert instances.lines() == []


def test_what_nvml_refuses_is_told(
    hardware: Hardware, instances: MigInstances, source: Callable[..., NvmlSource]
) -> None:
    """No room, no right, in use: the message is NVML's."""
    instances.has("GPU-a 1 0 9 0 4 MIG-1")
    nvml = source(mig_instances_by="agent")
    nvml.read()
    with pytest.raises(PartitionError, match="nvmlDeviceCreateGpuInstanceWithPlacement"):
        nvml.create("n1", WISH)
    with pytest.raises(PartitionError, match="no profile 9g"):
        nvml.create("n1", Wish("pod/0", "GPU-a", "9g.99gb", Slices(0, 8)))
    hardware.cards[0].lines.append("error nvmlComputeInstanceDestroy 19")
    hardware.write()
    with pytest.raises(PartitionError, match="nvmlComputeInstanceDestroy"):
        nvml.destroy("n1", Wish("pod/1", "GPU-a", "3g.20gb", Slices(0, 4)))
    assert instances.lines() == ["GPU-a 1 0 9 0 4 MIG-1"]


class Node:
    """An agent's partitions over the stub, and what the API server knows of them."""

    def __init__(self, nvml: NvmlSource, known: Status | None = None) -> None:
        self.nvml = nvml
        self.partitions = Partitions("n1")
        self.partitions.recall(known)

    def turn(self, *, publishes: bool = True) -> NodeReport:
        """Read, do what is due, and publish."""
        report = self.nvml.read()["n1"]
        if self.partitions.step(self.nvml, report):
            report = self.nvml.read()["n1"]
        report = self.partitions.mark(report)
        if publishes:
            self.partitions.announced(report)
        return report


@pytest.fixture
def node(instances: MigInstances, source: Callable[..., NvmlSource]) -> Node:
    """A node whose agent makes instances."""
    return Node(source(mig_instances_by="agent"))


def test_a_wish_is_announced_before_it_is_fulfilled(instances: MigInstances, node: Node) -> None:
    """So that whoever comes after a crash knows whose the instance is."""
    node.partitions.want((WISH,))
    report = node.turn(publishes=False)
    assert [each.wish for each in report.mig_instances] == [WISH]
    node.turn(publishes=False)
    assert instances.lines() == []
    node.turn()
    report = node.turn()
    assert len(instances.lines()) == 1
    (unit,) = (device.card for device in report.devices if device.card.instance is not None)
    assert unit.instance is not None
    assert unit.instance.wish == "pod/0"


def test_what_is_not_wanted_any_more_is_destroyed(instances: MigInstances, node: Node) -> None:
    """The list is what is wanted; without a list nothing is destroyed; an administrator's instance never is."""
    instances.has("GPU-a 7 0 19 6 1 MIG-1")
    node.partitions.want((WISH,))
    for _ in range(3):
        node.turn()
    assert len(instances.lines()) == 2
    node.partitions.want(None)
    node.turn()
    assert len(instances.lines()) == 2
    node.partitions.want(())
    assert node.turn().mig_instances == ()
    assert instances.lines() == ["GPU-a 7 0 19 6 1 MIG-1"]


@pytest.mark.parametrize("died", ["before it was made", "half made", "made"])
@pytest.mark.parametrize("wanted", [True, False])
def test_a_killed_agent_goes_on(
    instances: MigInstances,
    source: Callable[..., NvmlSource],
    node: Node,
    died: str,
    wanted: bool,  # noqa: FBT001 -- a parameter of the table
) -> None:
    """Whenever it died, the next one has what is wanted and nothing else, by what the API server knows."""
    node.partitions.want((WISH,))
    known = node.turn().status()
    made = {"before it was made": [], "half made": ["GPU-a 4 -1 14 2 2 M"], "made": ["GPU-a 4 0 14 2 2 M"]}[died]
    instances.has(*made)
    after = Node(source(mig_instances_by="agent"), known)
    after.partitions.want((WISH,) if wanted else ())
    after.turn()
    assert [line.split()[2:6] for line in instances.lines()] == ([["0", "14", "2", "2"]] if wanted else [])


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        (Wish("p/0", "GPU-c", "2g.10gb", Slices(2, 2)), "the node has no card GPU-c"),
        (Wish("p/0", "GPU-b", "2g.10gb", Slices(2, 2)), "not in MIG mode"),
        (Wish("p/0", "GPU-a", "2g.10gb", Slices(1, 2)), "no place for profile 2g.10gb at 1"),
        (Wish("p/0", "GPU-a", "1g.5gb", Slices(6, 1)), "not made for a wish"),
    ],
)
def test_a_wish_that_cannot_be_is_refused(instances: MigInstances, node: Node, wish: Wish, reason: str) -> None:
    """Nothing is made for it, and nothing destroyed when it goes."""
    instances.has("GPU-a 7 0 19 6 1 MIG-1")
    node.partitions.want((wish,))
    for _ in range(2):
        (told,) = node.turn().mig_instances
    assert told.refused
    assert reason in told.message
    node.partitions.want(())
    node.turn()
    assert instances.lines() == ["GPU-a 7 0 19 6 1 MIG-1"]


def test_a_failure_is_told_and_tried_again(hardware: Hardware, instances: MigInstances, node: Node) -> None:
    """What NVML would not do now it may do later."""
    hardware.cards[0].lines.append(f"error nvmlGpuInstanceCreateComputeInstance {NOT_SUPPORTED}")
    hardware.write()
    node.partitions.want((WISH,))
    node.turn()
    (told,) = node.turn().mig_instances
    assert "nvmlGpuInstanceCreateComputeInstance" in told.message
    assert not told.refused
    hardware.cards[0].lines.pop()
    hardware.write()
    (told,) = node.turn().mig_instances
    assert told.message == ""
    assert instances.lines() == ["GPU-a 1 0 14 2 2 MIG-GPU-a-1"]
