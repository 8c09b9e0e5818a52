"""Adapters and the storage path of the nodes of a fleet file."""

import pytest

from agent.declared.fleet import parse
from agent.inventory import InventoryError
from agent.report import NodeReport
from allocation.fabric import CuFile, Fabric, Hca, HcaPort
from cluster.gpu_node_status import GpuNodeStatus
from cluster.metadata import ObjectMeta

FABRIC = """
hcas:
  - {name: mlx5_0, model: MT4129, numa: 0, gpuDirect: true, ports: [{number: 1, rateGbps: 400}]}
  - {name: mlx5_1, ports: [{number: 1, state: Down, linkLayer: Ethernet}, {number: 2}]}
cuFile: {enabled: true, version: 2.17.5}
"""
DECLARED = Fabric(
    (
        Hca("mlx5_0", "MT4129", (HcaPort(1, "Active", 400, "InfiniBand"),), gpu_direct=True, numa=0),
        Hca("mlx5_1", "", (HcaPort(1, "Down", 0, "Ethernet"), HcaPort(2)), gpu_direct=False, numa=-1),
    ),
    CuFile(enabled=True, version="2.17.5"),
)


def _parse(text: str) -> NodeReport:
    return parse(text.encode(), file="f")["n1"]


@pytest.mark.parametrize("cards", ["count: 1\n  memoryMiB: 5", "cards: [{index: 0, memoryMiB: 5}]"])
def test_node_declares_its_fabric(cards: str) -> None:
    """With both forms of a mapping; what is missing is unknown, and ports are active InfiniBand ports."""
    indented = FABRIC.replace("\n", "\n    ")
    report = _parse(f"n1:\n  {cards}\n  fabric:{indented}")
    assert report.fabric == DECLARED
    assert GpuNodeStatus(ObjectMeta("n1", "u"), report.status()).inventory().fabric == DECLARED


def test_node_without_declared_fabric_has_that_of_the_machine() -> None:
    """As with its delivery; an empty fabric is declared, so that a simulated node has no adapters."""
    assert _parse("n1: {count: 1, memoryMiB: 5}").fabric is None
    assert _parse("n1: [{index: 0, memoryMiB: 5}]").fabric is None
    assert _parse("n1: {count: 1, memoryMiB: 5, fabric: {}}").fabric == Fabric()


@pytest.mark.parametrize(
    ("fabric", "message"),
    [
        ("5", "f: n1.fabric holds '5': it must be a mapping; correct the value"),
        ("{hca: []}", "n1.fabric.hca holds '[]': the key is unknown; the valid keys are cuFile, hcas"),
        ("{hcas: {}}", "n1.fabric.hcas holds '{}': it must be a list of at most 64 adapters; correct"),
        (
            "{hcas: [mlx5_0]}",
            "n1.fabric.hcas[0] holds 'mlx5_0': it must be a mapping; write for example {name",
        ),
        ("{hcas: [{}]}", "n1.fabric.hcas[0].name holds '': it must be a name of at most 63 characters"),
        ("{hcas: [{name: 'a,b'}]}", "n1.fabric.hcas[0].name holds 'a,b': it must be a name"),
        ("{hcas: [{name: '^mlx5'}]}", "n1.fabric.hcas[0].name holds '^mlx5': it must be a name"),
        ('{hcas: [{name: "a\\n"}]}', "n1.fabric.hcas[0].name holds 'a\\n': it must be a name"),
        ("{hcas: [{name: a}, {name: a}]}", "n1.fabric.hcas[1].name holds 'a': another entry has this name; give"),
        ("{hcas: [{name: a, numa: -1}]}", "n1.fabric.hcas[0].numa holds '-1': it must be a whole number from 0"),
        ("{hcas: [{name: a, gpuDirect: 1}]}", "n1.fabric.hcas[0].gpuDirect holds '1': it must be true or false"),
        ("{hcas: [{name: a, model: 5}]}", "n1.fabric.hcas[0].model holds '5': it must be a string of at most 63"),
        ("{hcas: [{name: a, ports: [1]}]}", "n1.fabric.hcas[0].ports[0] holds '1': it must be a mapping; write"),
        ("{hcas: [{name: a, ports: [{}]}]}", "n1.fabric.hcas[0].ports[0].number holds '': it must be a whole number"),
        (
            "{hcas: [{name: a, ports: [{number: 1}, {number: 1}]}]}",
            "n1.fabric.hcas[0].ports[1].number holds '1': another entry has this number",
        ),
        (
            "{hcas: [{name: a, ports: [{number: 1, state: Up}]}]}",
            "ports[0].state holds 'Up': it must be one of Active, Armed, Initializing, Down",
        ),
        (
            "{hcas: [{name: a, ports: [{number: 1, linkLayer: IB}]}]}",
            "ports[0].linkLayer holds 'IB': it must be one of InfiniBand, Ethernet, Unknown",
        ),
        (
            "{hcas: [{name: a, ports: [{number: 1, rateGbps: 2.5}]}]}",
            "ports[0].rateGbps holds '2.5': it must be a whole",
        ),
        ("{cuFile: true}", "n1.fabric.cuFile holds 'True': it must be a mapping"),
        ("{cuFile: {}}", "n1.fabric.cuFile.enabled holds '': it must be true or false; add the key"),
        ("{cuFile: {enabled: true, version: 2.17}}", "n1.fabric.cuFile.version holds '2.17': it must be a string"),
    ],
)
def test_invalid_fabric_is_rejected(fabric: str, message: str) -> None:
    """The message names the place in the file, the value, the allowed values and the next step."""
    with pytest.raises(InventoryError) as refusal:
        _parse(f"n1: {{count: 1, memoryMiB: 1, fabric: {fabric}}}")
    assert message in str(refusal.value)
