"""The GpuNodeStatus CRD: the ledger trusts these objects, so the API server rejects invalid ones."""

import json
import re
from typing import Any

import msgspec
import pytest

from allocation.fabric import CuFile, Fabric, Hca, HcaPort
from allocation.node_isolation import LONGEST_MESSAGE, IsolationProblem
from allocation.topology.layout import PeerLink
from cluster.gpu_node_status import Device, Status
from lab import kubectl
from lab.client import client
from lab.errors import LabError
from lab.layout import Layout
from tests.agent.support.cluster_view import as_scheduler

pytestmark = pytest.mark.apiserver

CARD: dict[str, Any] = {"id": 0, "uuid": "GPU-a", "memoryMiB": 100}


def _create(cluster: Layout, *, name: str, node: str) -> None:
    head = {"apiVersion": "gpu.scheduling/v1", "kind": "GpuNodeStatus", "metadata": {"name": name}}
    client(cluster).apply({**head, "spec": {"nodeName": node}})


def _report(cluster: Layout, name: str, *devices: dict[str, Any]) -> None:
    _set_status(cluster, name, {"total": len(devices), "devices": devices})


def _set_status(cluster: Layout, name: str, status: Any) -> None:
    client(cluster).patch("gns", name, {"status": status}, subresource="status")


def test_object_name_must_equal_node_name(cluster: Layout) -> None:
    """Readers take the node from the object's name, so `spec.nodeName` may not differ from it."""
    with pytest.raises(LabError, match=r"spec\.nodeName must be the object's own name"):
        _create(cluster, name="crd-1", node="crd-2")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("health", "Fine"),
        ("mode", "time-slicing"),
        ("cores", 100_001),
        ("memoryMiB", -1),
        ("id", -1),
        ("slots", 1.5),
        ("uuid", "GPU-a,GPU-b"),
        ("uuid", ""),
        ("bandwidthGBps", -1),
        ("message", "x" * 1025),
        ("instancesBy", "nobody"),
        ("numa", -1),
        ("links", [{"id": 1}]),
        ("links", [{"id": -1, "bandwidthGBps": 50}]),
        ("links", [{"id": 1, "bandwidthGBps": -1}]),
        ("links", [{"id": 1, "bandwidthGBps": 50}] * 65),
        ("pcieGroups", [0, 0, 0, 0, 0]),
        ("pcieGroups", [-1]),
    ],
)
def test_value_out_of_bounds_is_rejected(cluster: Layout, field: str, value: object) -> None:
    """A device that would break the ledger or a container's environment never reaches the API."""
    _create(cluster, name="crd-1", node="crd-1")
    _report(cluster, "crd-1", CARD)
    with pytest.raises(LabError, match=rf"status\.devices\[0\]\.{field}"):
        _report(cluster, "crd-1", CARD | {field: value})


def test_duplicate_card_is_rejected(cluster: Layout) -> None:
    """Devices are a map by UUID."""
    _create(cluster, name="crd-1", node="crd-1")
    with pytest.raises(LabError, match="Duplicate value"):
        _report(cluster, "crd-1", CARD, CARD | {"id": 1})


def test_kubectl_shows_node_and_devices(cluster: Layout) -> None:
    """`kubectl get gns` shows the number of cards of each node."""
    _create(cluster, name="crd-1", node="crd-1")
    _report(cluster, "crd-1", CARD, CARD | {"id": 1, "uuid": "GPU-b"})
    header, line = kubectl.run(cluster, "get", "gns", "crd-1").splitlines()
    assert header.split() == ["NAME", "NODE", "DEVICES", "STATE", "AGE"]
    assert line.split()[:3] == ["crd-1", "crd-1", "2"]


def test_kubectl_wide_shows_driver_isolation_and_delivery(cluster: Layout) -> None:
    """`kubectl get gns -o wide` shows them for the whole node; an unknown state, backend or delivery is rejected."""
    _create(cluster, name="crd-1", node="crd-1")
    _set_status(cluster, "crd-1", {"driverVersion": "570.86.15", "isolation": ["none", "mps"]})
    _set_status(cluster, "crd-1", {"delivery": {"mode": "cdi", "toolkit": {"mode": "auto"}}})
    _set_status(cluster, "crd-1", {"state": "NoCards", "message": "the driver lists no card"})
    header, line = kubectl.run(cluster, "get", "gns", "crd-1", "-o", "wide").splitlines()
    shown = dict(zip(header.split(), line.split(), strict=True))
    assert (shown["DRIVER"], shown["ISOLATION"], shown["DELIVERY"]) == ("570.86.15", '["none","mps"]', "cdi")
    assert shown["STATE"] == "NoCards"
    with pytest.raises(LabError, match=r"status\.state"):
        _set_status(cluster, "crd-1", {"state": "Odd"})
    with pytest.raises(LabError, match=r"status\.delivery\.mode"):
        _set_status(cluster, "crd-1", {"delivery": {"mode": "hook"}})
    with pytest.raises(LabError, match=r"status\.isolation\[0\]"):
        _set_status(cluster, "crd-1", {"isolation": ["time-slicing"]})
    _set_status(cluster, "crd-1", {"isolationProblems": [{"isolation": "cuda", "message": "x" * LONGEST_MESSAGE}]})
    with pytest.raises(LabError, match=r"status\.isolationProblems\[0\]\.message"):
        _set_status(cluster, "crd-1", {"isolationProblems": [{"isolation": "cuda", "message": "x" * 1000}]})


LINKS = (PeerLink(1, 50), PeerLink(2, 25))
PORTS = (HcaPort(1, "Active", 400, "InfiniBand"), HcaPort(2, "Down", 0, "Ethernet"))
HCAS = (Hca("mlx5_10", "MT4129", PORTS, gpu_direct=True, numa=1), Hca("mlx5_2", numa=-1))
FABRIC = Fabric(HCAS, CuFile(enabled=True, version="2.17.5"))


def _write_status(cluster: Layout, name: str, status: Status) -> None:
    _set_status(cluster, name, json.loads(msgspec.json.encode(status)))


def test_no_field_of_a_full_status_is_dropped(cluster: Layout) -> None:
    """Links and adapters come back in their order, with every value."""
    _create(cluster, name="crd-full", node="crd-full")
    card = Device(0, "GPU-a", 100, numa=0, island="a", bandwidth_gbps=75, links=LINKS, pcie_groups=(0, 0, 0, 0))
    problems = (IsolationProblem("cuda", "no driver"), IsolationProblem("mps", "no daemon"))
    status = Status([card, Device(1, "GPU-b", 100)], 2, "570.86.15", ["none"], problems, fabric=FABRIC)
    _write_status(cluster, "crd-full", status)
    stored = client(cluster).get("gns", "crd-full")["status"]
    assert stored == json.loads(msgspec.json.encode(status))
    assert msgspec.convert(stored, Status) == status


def _fabric(**hca: Any) -> dict[str, Any]:
    return {"hcas": [{"name": "mlx5_0"} | hca]}


@pytest.mark.parametrize(
    ("fabric", "field"),
    [
        (_fabric(name="mlx5_0,mlx5_1"), "hcas[0].name"),
        (_fabric(name="^mlx5"), "hcas[0].name"),
        (_fabric(name=""), "hcas[0].name"),
        (_fabric(name="x" * 64), "hcas[0].name"),
        ({"hcas": [{"model": "MT4129"}]}, "hcas[0].name"),
        (_fabric(model="x" * 64), "hcas[0].model"),
        (_fabric(numa=-2), "hcas[0].numa"),
        (_fabric(gpuDirect="yes"), "hcas[0].gpuDirect"),
        ({"hcas": [{"name": f"mlx5_{number}"} for number in range(65)]}, "hcas"),
        (_fabric(ports=[{"state": "Active"}]), "hcas[0].ports[0].number"),
        (_fabric(ports=[{"number": 0}]), "hcas[0].ports[0].number"),
        (_fabric(ports=[{"number": 1, "state": "Up"}]), "hcas[0].ports[0].state"),
        (_fabric(ports=[{"number": 1, "rateGbps": -1}]), "hcas[0].ports[0].rateGbps"),
        (_fabric(ports=[{"number": 1, "linkLayer": "Wireless"}]), "hcas[0].ports[0].linkLayer"),
        (_fabric(ports=[{"number": number} for number in range(1, 18)]), "hcas[0].ports"),
        ({"cuFile": {"enabled": "yes"}}, "cuFile.enabled"),
        ({"cuFile": {"version": "x" * 64}}, "cuFile.version"),
    ],
)
def test_invalid_fabric_is_rejected(cluster: Layout, fabric: dict[str, Any], field: str) -> None:
    """The scheduler writes the names into the environment of containers, and counts the ports."""
    _create(cluster, name="crd-1", node="crd-1")
    with pytest.raises(LabError, match=re.escape(f"status.fabric.{field}")):
        _set_status(cluster, "crd-1", {"fabric": fabric})


@pytest.mark.parametrize("fabric", [Fabric((HCAS[1],) * 2), Fabric((Hca("mlx5_0", ports=(PORTS[0],) * 2),))])
def test_adapters_and_ports_count_once(cluster: Layout, fabric: Fabric) -> None:
    """Both are maps, by name and by number."""
    _create(cluster, name="crd-1", node="crd-1")
    with pytest.raises(LabError, match="Duplicate value"):
        _write_status(cluster, "crd-1", Status(fabric=fabric))


PLACE = {"start": 6, "size": 1}
REQUEST: dict[str, Any] = {"id": "uid/0", "card": "GPU-a", "profile": "1g.10gb", "placement": PLACE}


@pytest.mark.parametrize(
    "change",
    [
        {"id": "uid"},
        {"id": "/0"},
        {"card": ""},
        {"profile": "x" * 64},
        {"placement": None},
        {"placement": {"start": -1, "size": 1}},
        {"placement": {"start": 0, "size": 0}},
    ],
)
def test_impossible_instance_request_is_refused(cluster: Layout, change: dict[str, Any]) -> None:
    """Agents act upon `spec.migInstances`."""
    _create(cluster, name="crd-1", node="crd-1")

    def request(*requests: dict[str, Any]) -> None:
        as_scheduler(cluster).patch("gns", "crd-1", {"spec": {"migInstances": requests}})

    request(REQUEST)
    with pytest.raises(LabError, match=r"spec\.migInstances\[0\]"):
        request(REQUEST | change)
    with pytest.raises(LabError, match="Duplicate value"):
        request(REQUEST, REQUEST)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("instance", {"profile": "1g.10gb"}),
        ("instance", {"parent": "GPU-b", "profile": "1g.10gb", "placement": {"start": 0, "size": 0}}),
        ("instance", {"parent": "GPU-b", "profile": "1g.10gb", "gpuInstanceID": -1}),
        ("instance", {"parent": "GPU-b", "profile": "1g.10gb", "wish": "uid/x"}),
        ("migProfiles", [{"name": "1g.10gb"}]),
        ("migProfiles", [{"name": "1g.10gb", "memoryMiB": 1, "cores": 1001, "sliceCount": 1}]),
    ],
)
def test_invalid_mig_status_is_rejected(cluster: Layout, field: str, value: object) -> None:
    """An instance needs a card and a valid placement, a profile needs its sizes."""
    _create(cluster, name="crd-1", node="crd-1")
    with pytest.raises(LabError, match=rf"status\.devices\[0\]\.{field}"):
        _report(cluster, "crd-1", CARD | {field: value})
