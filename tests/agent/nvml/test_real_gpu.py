"""On a machine with a GPU, the agent's report equals what `nvidia-smi` prints.

The reading runs in a process of its own, which never loaded the stub.
"""

import shutil
import subprocess
import sys

import msgspec
import pytest

from agent.report import NodeReport
from tests.nvml import nvidia_smi

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="this machine has no GPU"),
]

READ = """
import msgspec, sys
from agent.nvml.source import NvmlSource
from agent.settings import AgentSettings
with NvmlSource(node="n1", settings=AgentSettings(), wake=lambda: None) as source:
    sys.stdout.buffer.write(msgspec.json.encode(source.read()["n1"]))
"""


@pytest.fixture(scope="module")
def report() -> NodeReport:
    """What the agent reports about this machine."""
    read = subprocess.run([sys.executable, "-c", READ], capture_output=True, check=True).stdout
    return msgspec.json.decode(read, type=NodeReport)


def _nvidia_smi(*arguments: str) -> str:
    return subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, check=False).stdout


def test_inventory_equals_nvidia_smi(report: NodeReport) -> None:
    """Compares index, UUID, name, MiB and driver of every card."""
    expected = _nvidia_smi("--query-gpu=index,uuid,name,memory.total,driver_version", "--format=csv,noheader,nounits")
    read = [
        [str(card.index), card.uuid, card.model, str(card.memory_mib), report.driver_version]
        for card in report.inventory.cards
        if card.instance is None
    ]
    assert read == [line.split(", ") for line in expected.splitlines()]


def test_bandwidth_equals_nvidia_smi(report: NodeReport) -> None:
    """Compares the sum of each card's active links, in one direction; `nvidia-smi` rounds each to MB/s."""
    speeds = nvidia_smi.link_speeds(_nvidia_smi("nvlink", "-s"))
    for device in report.devices:
        if device.card.instance is None:
            assert device.bandwidth_gbps == speeds.get(device.card.uuid, 0) // 1000


def test_connections_of_pairs_equal_nvidia_smi(report: NodeReport) -> None:
    """Compares each pair of cards, where there are several, with the matrix of `topo -m`."""
    whole = [device for device in report.devices if device.card.instance is None]
    cells = nvidia_smi.topology_matrix(_nvidia_smi("topo", "-m"))
    assert len(cells) == len(whole)
    assert [
        (one.card.index, other.card.index, cells[row][column])
        for row, one in enumerate(whole)
        for column, other in enumerate(whole)
        if row != column and not nvidia_smi.matches(cells[row][column], one, other)
    ] == []
