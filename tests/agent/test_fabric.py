"""What the agent finds out about the network adapters of its node and its path to storage, on recorded trees of sysfs.

The trees have the files that Linux writes for these adapters; a `device` is a folder instead of a link to the PCI
device, which reads the same.
"""

import logging
from pathlib import Path

import pytest

from agent import fabric
from agent.settings import AgentSettings
from allocation.fabric import NO_FABRIC, CuFile, Fabric, Hca, HcaPort

NDR = {"state": "4: ACTIVE", "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand"}
NDR_DOWN = {"state": "1: DOWN", "rate": "10 Gb/sec (4X SDR)", "link_layer": "InfiniBand"}
ROCE = {"state": "4: ACTIVE", "rate": "100 Gb/sec (4X EDR)", "link_layer": "Ethernet"}
CONNECTX_7 = {"node_type": "1: CA", "hca_type": "MT4129", "board_id": "MT_0000000838"}
OPEN_DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build"
PROPRIETARY_DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.06"


class Node:
    """The sysfs and procfs of a node, as files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("sys/class/infiniband_verbs/abi_version", "6")

    def write(self, path: str, content: str | bytes) -> None:
        """Write a file and the folders above it."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())

    def add(
        self, name: str, *ports: dict[str, str], numa: int | None = 0, driver: str = "mlx5_core", **files: str
    ) -> None:
        """Add an adapter, a ConnectX-7 unless `files` say otherwise; `numa` is None for one that is software."""
        device = f"sys/class/infiniband/{name}"
        for file, content in (
            {"node_type": "1: CA", "hca_type": "MT4129", "board_id": "MT_0000000838"} | files
        ).items():
            self.write(f"{device}/{file}", content)
        for number, port in enumerate(ports, 1):
            for file, content in port.items():
                self.write(f"{device}/ports/{number}/{file}", content)
        if numa is not None:
            self.write(f"{device}/device/numa_node", str(numa))
            (self.root / device / "device/driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")

    def load(self, module: str) -> None:
        """Load a kernel module."""
        (self.root / "sys/module" / module).mkdir(parents=True)

    def find(self) -> Fabric:
        """Return what the agent finds."""
        return fabric.find(AgentSettings(sysfs=str(self.root / "sys"), procfs=str(self.root / "proc")))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node without adapters and modules."""
    return Node(tmp_path)


def test_node_without_adapters_has_no_fabric(node: Node) -> None:
    """Neither the drivers for RDMA nor nvidia-fs are loaded; nothing is logged."""
    assert node.find() == NO_FABRIC


def test_dgx_h100_has_eight_active_ports(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """Adapters are in the order of their numbers, four by each CPU, and reach the cards by peer memory."""
    names = [f"mlx5_{number}" for number in (0, 3, 4, 5, 6, 9, 10, 11)]
    for name in reversed(names):
        node.add(name, NDR, numa=int(name.removeprefix("mlx5_")) // 6)
    node.load("nvidia_peermem")
    found = node.find()
    port = HcaPort(1, "Active", 400, "InfiniBand")
    assert found.hcas == tuple(
        Hca(name, "MT4129", (port,), gpu_direct=True, numa=place // 4) for place, name in enumerate(names)
    )
    assert found.active_ports == 8
    assert not caplog.records


def test_port_that_is_down_is_not_active(node: Node) -> None:
    """An adapter with two ports reports both, each with its state and its link layer."""
    node.add("mlx5_0", NDR_DOWN, ROCE, numa=-1)
    (hca,) = node.find().hcas
    assert hca.ports == (HcaPort(1, "Down", 10, "InfiniBand"), HcaPort(2, "Active", 100, "Ethernet"))
    assert (hca.active_ports, hca.numa) == (1, -1)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("0: NOP", "Down"),
        ("1: DOWN", "Down"),
        ("2: INIT", "Initializing"),
        ("3: ARMED", "Armed"),
        ("4: ACTIVE", "Active"),
        ("5: ACTIVE_DEFER", "Down"),
        ("", "Down"),
        ("ACTIVE", "Down"),
    ],
)
def test_only_the_state_active_transfers(text: str, state: str) -> None:
    """The kernel writes the number of the state and its name; a port whose link is being repaired counts as down."""
    assert fabric.port_state(text) == state


@pytest.mark.parametrize(
    ("text", "rate"),
    [("400 Gb/sec (4X NDR)", 400), ("2.5 Gb/sec (1X SDR)", 2), ("14 Gb/sec (1X FDR)", 14), ("0 Gb/sec (4X)", 0)],
)
def test_rate_is_rounded_down(text: str, rate: int) -> None:
    """A single lane of SDR has 2.5 Gbit/s."""
    assert fabric.rate_gbps(text) == rate


def test_devices_that_nccl_cannot_use_are_left_out(node: Node) -> None:
    """EFA and iWARP are other protocols; a virtual function has no port of its own."""
    node.add("mlx5_0", NDR)
    node.add("mlx5_1", NDR)
    node.write("sys/class/infiniband/mlx5_1/device/physfn/vendor", "0x15b3")
    node.add("rdmap0s6", ROCE, node_type="7: unspecified", driver="efa")
    node.add("irdma0", ROCE, node_type="4: RNIC", driver="irdma")
    assert [hca.name for hca in node.find().hcas] == ["mlx5_0"]


def test_model_is_the_board_without_a_type(node: Node) -> None:
    """Some drivers report only the board, adapters in software neither; these have no NUMA node."""
    node.add("a", NDR)
    node.add("b", NDR, numa=None)
    for file in ("a/hca_type", "b/hca_type", "b/board_id"):
        (node.root / "sys/class/infiniband" / file).unlink()
    assert [(hca.model, hca.numa) for hca in node.find().hcas] == [("MT_0000000838", 0), ("", -1)]


@pytest.mark.parametrize("module", ["nvidia_peermem", "nv_peer_mem"])
def test_peer_memory_serves_all_adapters_on_pci(node: Node, module: str) -> None:
    """Either module does; an adapter in software copies through the host's memory."""
    node.add("bnxt_re0", ROCE, driver="bnxt_en")
    node.add("rxe0", ROCE, numa=None)
    assert [hca.gpu_direct for hca in node.find().hcas] == [False, False]
    node.load(module)
    assert [hca.gpu_direct for hca in node.find().hcas] == [True, False]


@pytest.mark.parametrize("kernel", ["5.12.0", "5.15.0-130-generic", "6.8.0"])
def test_dma_buf_needs_no_peer_memory(node: Node, kernel: str) -> None:
    """NVIDIA's open kernel module suffices with mlx5."""
    node.add("mlx5_0", NDR)
    node.write("proc/sys/kernel/osrelease", kernel)
    assert [hca.gpu_direct for hca in node.find().hcas] == [False]
    node.write("proc/driver/nvidia/version", OPEN_DRIVER)
    assert [hca.gpu_direct for hca in node.find().hcas] == [True]


@pytest.mark.parametrize(
    ("driver", "kernel", "version"),
    [
        ("mlx5_core", "5.4.0-200-generic", OPEN_DRIVER),
        ("mlx5_core", "5.15.0", PROPRIETARY_DRIVER),
        ("mlx4_core", "5.15.0", OPEN_DRIVER),
        ("mlx5_core", "garbage", OPEN_DRIVER),
        ("mlx5_core", "5.15.0", "\0"),
    ],
)
def test_adapter_without_dma_buf_is_not_capable(node: Node, driver: str, kernel: str, version: str) -> None:
    """What is unknown counts as not capable."""
    node.add("mlx5_0", NDR, driver=driver)
    node.write("proc/sys/kernel/osrelease", kernel)
    node.write("proc/driver/nvidia/version", version)
    assert [hca.gpu_direct for hca in node.find().hcas] == [False]


@pytest.mark.parametrize(
    ("version", "found"), [("version: 2.17.5", "2.17.5"), ("2.28", "2.28"), ("", ""), ("garbage", ""), (None, "")]
)
def test_cu_file_needs_nvidia_fs(node: Node, version: str | None, found: str) -> None:
    """Its version may be unknown."""
    (node.root / "proc/driver/nvidia-fs").mkdir(parents=True)
    if version is not None:
        node.write("proc/driver/nvidia-fs/version", version)
    assert node.find() == Fabric(cu_file=CuFile(enabled=True, version=found))


def test_configuration_of_cu_file_does_not_enable_it(node: Node) -> None:
    """Without nvidia-fs its library copies through the host's memory."""
    node.write("etc/cufile.json", "{}")
    assert node.find() == NO_FABRIC


def test_garbage_is_unknown_and_logged_once(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """An adapter with unreadable files is reported with what is known of it, and never as active."""
    caplog.set_level(logging.INFO)
    node.add("mlx5_0", {"state": "\xff", "rate": "fast", "link_layer": "Wireless"})
    device = node.root / "sys/class/infiniband/mlx5_0"
    (device / "device/numa_node").write_bytes(b"\xff\xfe")
    (device / "hca_type").unlink()
    (device / "hca_type").mkdir()
    (device / "ports/garbage").mkdir()
    (device / "ports/2").write_text("a file")
    port, other = HcaPort(1, "Down", 0, "Unknown"), HcaPort(2, "Down", 0, "Unknown")
    for _ in range(2):
        assert node.find().hcas == (Hca("mlx5_0", "MT_0000000838", (port, other), gpu_direct=False, numa=-1),)
    assert len([record for record in caplog.records if "not read" in record.message]) == 3
    assert "ports/1/rate: not read: 'fast' is not a rate in Gb/sec" in caplog.text
    node.write("sys/class/infiniband/mlx5_0/ports/1/rate", NDR["rate"])
    assert node.find().hcas[0].ports[0].rate_gbps == 400
    assert "ports/1/rate: recovered" in caplog.text


@pytest.mark.parametrize("name", ["mlx5,1", "mlx5 1", "mlx5:1", "a" * 64, "mlx5\n"])
def test_name_that_would_break_an_environment_variable_is_left_out(
    node: Node, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Root can name adapters at will; NCCL_IB_HCA separates them with commas, and ports with colons."""
    node.add(name, NDR)
    node.add("mlx5_0", NDR)
    assert [hca.name for hca in node.find().hcas] == ["mlx5_0"]
    assert "left out: a name may have" in caplog.text


def test_numbers_are_limited_as_in_the_crd(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """A node with too many adapters is still published."""
    for number in range(65):
        node.add(f"mlx5_{number}", *[NDR] * (17 if number == 0 else 1))
    found = node.find()
    assert [hca.name for hca in found.hcas] == [f"mlx5_{number}" for number in range(64)]
    assert len(found.hcas[0].ports) == 16
    assert "only the first 64 of 65 are reported" in caplog.text


def test_files_in_place_of_folders_are_no_failure(node: Node) -> None:
    """The agent keeps reporting cards."""
    for path in ("sys/class/infiniband", "sys/module", "proc/driver", "proc/sys"):
        node.write(path, "not a folder")
    assert node.find() == NO_FABRIC
