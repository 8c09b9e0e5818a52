"""An agent against a real API server, with only the permissions of its manifest."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.declared.fleet import parse
from allocation.fabric import CuFile, Fabric, Hca, HcaPort
from allocation.wire.hami import decode_register
from cluster.gpu_node_status import Device, GpuNodeStatus
from lab import wait
from lab.client import client
from lab.layout import Layout
from tests.agent.support.cluster_view import REGISTER, await_heartbeat, await_registered, heartbeat, published
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.apiserver

FABRIC = """{hcas: [{name: mlx5_10, numa: 1, gpuDirect: true, ports: [{number: 2, rateGbps: 400}, {number: 1}]},
    {name: mlx5_2}], cuFile: {enabled: true}}"""


def test_every_node_of_a_fleet_is_published(
    cluster: Layout, add_node: Callable[[str], None], start_agent: Callable[[str], Any]
) -> None:
    """Every node of the file gets a register annotation, a GpuNodeStatus and a heartbeat, and they agree."""
    one = "{count: 2, memoryMiB: 81920, model: NVIDIA H100, numa: 0}"
    other = "[{index: 3, memoryMiB: 7, model: NVIDIA L4, numa: 0}]"
    fleet = f"{{pub-1: {one}, pub-2: {other}}}"
    reports = parse(fleet.encode(), file="fleet.yaml")
    for node in reports:
        add_node(node)
    start_agent(fleet)
    for node, report in reports.items():
        inventory = report.inventory
        found = published(cluster, node)
        assert found["spec"] == {"nodeName": node}
        assert found["status"]["total"] == len(inventory.cards)
        assert [device["uuid"] for device in found["status"]["devices"]] == [card.uuid for card in inventory.cards]
        beat = await_heartbeat(cluster, node)  # the last of what is written
        metadata = client(cluster).get("node", node)["metadata"]
        assert decode_register(node, metadata["annotations"][REGISTER]) == inventory
        # With the annotation alone, and a device plugin, the node would pass for one that HAMi's plugin serves.
        assert int(found["metadata"]["resourceVersion"]) < int(metadata["resourceVersion"])
        assert beat["holderIdentity"] == "agent-under-test"
        assert beat["leaseDurationSeconds"] == 1
    managers = {
        entry["manager"]: entry.get("subresource", "")
        for entry in client(cluster).get("gpunodestatus", "pub-1")["metadata"]["managedFields"]
    }
    assert managers == {"tranche-agent": "", "tranche-agent-status": "status"}


def test_links_and_fabric_of_a_fleet_are_published(
    cluster: Layout, add_node: Callable[[str], None], start_agent: Callable[[str], Any]
) -> None:
    """What the file declares reaches the scheduler's inventory, nothing dropped; an unknown NUMA node is left out."""
    cards = "[{index: 0, memoryMiB: 9, numa: 0, pcieGroups: [0, 0]}, {index: 1, memoryMiB: 9}]"
    fleet = f"fabric-1: {{cards: {cards}, links: [[0, 1, 50]], fabric: {FABRIC}}}"
    report = parse(fleet.encode(), file="fleet.yaml")["fabric-1"]
    add_node("fabric-1")
    start_agent(fleet)
    found = published(cluster, "fabric-1")
    assert msgspec.convert(found["status"]["devices"], list[Device]) == report.status().devices
    assert found["status"]["fabric"] == json.loads(msgspec.json.encode(report.fabric))
    assert [device.get("numa") for device in found["status"]["devices"]] == [0, None]
    assert found["status"]["devices"][1]["links"] == [{"id": 0, "bandwidthGBps": 50}]
    inventory = msgspec.convert(found, GpuNodeStatus).inventory()
    assert inventory.fabric == report.fabric
    assert inventory.layout.bandwidth == ((50, 50), (50, 50))


def test_agent_reports_the_adapters_of_its_machine(
    cluster: Layout, add_node: Callable[[str], None], run_agent: Callable[..., Any], fleet_file: Path, tmp_path: Path
) -> None:
    """Unless the file declares others; a port that goes down is published while the agent runs."""
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    port.mkdir(parents=True)
    for file, content in {"../../node_type": "1: CA", "state": "4: ACTIVE", "rate": "400 Gb/sec (4X NDR)"}.items():
        (port / file).write_text(content)
    (tmp_path / "proc/driver/nvidia-fs").mkdir(parents=True)
    add_node("fabric-2")
    fleet_file.write_text("fabric-2: {count: 1, memoryMiB: 100}")
    roots = ("--sysfs", str(tmp_path / "sys"), "--procfs", str(tmp_path / "proc"))
    run_agent("--fleet-file", str(fleet_file), *roots)

    def fabric() -> Fabric:
        return msgspec.convert(published(cluster, "fabric-2")["status"]["fabric"], Fabric)

    active = HcaPort(1, "Active", 400, "Unknown")
    assert fabric() == Fabric((Hca("mlx5_0", ports=(active,)),), CuFile(enabled=True))
    (port / "state").write_text("1: DOWN")
    wait.until(lambda: fabric().active_ports == 0, what="port down", timeout_s=PATIENCE_S)


def test_unchanged_inventory_is_not_written_again(
    cluster: Layout, add_node: Callable[[str], None], start_agent: Callable[[str], Any]
) -> None:
    """While the inventory does not change, the agent only renews the heartbeat, which spares the API server."""
    add_node("quiet-1")
    start_agent(f"quiet-1: {{count: 8, memoryMiB: 81920, links: [[0, 3, 50], [0, 1, 25]], fabric: {FABRIC}}}")
    before = published(cluster, "quiet-1")
    seen = await_heartbeat(cluster, "quiet-1")
    for _ in range(3):
        seen = await_heartbeat(cluster, "quiet-1", other_than=seen)
    assert client(cluster).get("gpunodestatus", "quiet-1") == before
    written = [
        event["objectRef"]
        for line in cluster.audit_log.read_text().splitlines()
        if (event := json.loads(line))["verb"] == "patch" and event["objectRef"].get("name") == "quiet-1"
        if event["user"]["username"] == "system:serviceaccount:tranche-lab:fleet-agent"
    ]
    assert sorted((item["resource"], item.get("subresource", "")) for item in written) == [
        ("gpunodestatuses", ""),
        ("gpunodestatuses", "status"),
        ("nodes", ""),
    ]


def test_card_marked_unhealthy_in_the_file_is_published(
    cluster: Layout, add_node: Callable[[str], None], start_agent: Callable[[str], Any], fleet_file: Path
) -> None:
    """The change reaches the GpuNodeStatus and the annotation while the agent runs."""
    add_node("unhealthy-1")
    start_agent("unhealthy-1: {count: 2, memoryMiB: 100}")
    published(cluster, "unhealthy-1")
    fleet_file.write_text("unhealthy-1: {count: 2, memoryMiB: 100, unhealthy: [1]}")
    wait.until(
        lambda: (
            [device["health"] for device in published(cluster, "unhealthy-1")["status"]["devices"]]
            == ["Healthy", "Unhealthy"]
        ),
        what="card 1 unhealthy",
        timeout_s=PATIENCE_S,
    )
    await_registered(
        cluster,
        "unhealthy-1",
        lambda cards: [card.healthy for card in cards] == [True, False],
        what="the same in the annotation",
    )


def test_invalid_file_keeps_the_last_inventory_published(
    cluster: Layout, add_node: Callable[[str], None], start_agent: Callable[[str], Any], fleet_file: Path
) -> None:
    """An error made while the agent runs is logged once; the last reading stays published, with its heartbeat."""
    add_node("broken-1")
    agent = start_agent("broken-1: {count: 1, memoryMiB: 100}")
    before = published(cluster, "broken-1")
    fleet_file.write_text("broken-1: {count: nine}")
    failures = r"tranche_agent_inventory_errors_total "
    wait.until(
        lambda: any(
            float(line.removeprefix(failures)) > 2
            for line in agent.http("/metrics")[1].splitlines()
            if line.startswith(failures)
        ),
        what="several failed readings",
        timeout_s=PATIENCE_S,
    )
    assert agent.log.count("inventory not read") == 1
    assert client(cluster).get("gpunodestatus", "broken-1") == before
    await_heartbeat(cluster, "broken-1", other_than=heartbeat(cluster, "broken-1"))


def test_missing_node_does_not_block_the_others(
    cluster: Layout, add_node: Callable[[str], None], start_agent: Callable[[str], Any]
) -> None:
    """A node that is not registered yet is logged once and keeps the agent unready until it is published."""
    add_node("there-1")
    agent = start_agent("{there-1: {count: 1, memoryMiB: 1}, late-1: {count: 1, memoryMiB: 1}}")
    published(cluster, "there-1")
    wait.until(
        lambda: agent.http("/readyz") == (503, "not published yet (1): late-1\n"),
        what="late-1 the only one not published",
        timeout_s=PATIENCE_S,
    )
    wait.until(
        lambda: 'tranche_agent_publish_errors_total{reason="NotFound"} 3.0' in agent.http("/metrics")[1],
        what="three attempts",
        timeout_s=PATIENCE_S,
    )
    assert agent.log.count("node late-1 is not published") == 1
    assert heartbeat(cluster, "late-1") is None
    assert client(cluster).find("gpunodestatus", "late-1") is None
    added = time.time()
    add_node("late-1")
    published(cluster, "late-1")
    wait.until(lambda: agent.http("/readyz") == (200, "ok\n"), what="ready", timeout_s=PATIENCE_S)
    assert agent.http("/healthz") == (200, "ok\n")
    metrics = agent.http("/metrics")[1]
    assert 'tranche_agent_cards{health="healthy",node="late-1"} 1.0' in metrics
    for written in ("publish", "heartbeat"):  # alerts ask how long ago that was
        found = re.search(rf'tranche_agent_last_{written}_timestamp_seconds{{node="late-1"}} (\S+)', metrics)
        assert found is not None
        assert added < float(found[1]) <= time.time()
    assert 'tranche_api_requests_total{code="404",' in metrics


def test_node_removed_from_the_file_loses_its_heartbeat(
    cluster: Layout, add_node: Callable[[str], None], start_agent: Callable[[str], Any], fleet_file: Path
) -> None:
    """Without a heartbeat the node gets no new pods; its published objects are not deleted."""
    for node in ("stay-1", "leave-1"):
        add_node(node)
    agent = start_agent("{stay-1: {count: 1, memoryMiB: 1}, leave-1: {count: 1, memoryMiB: 1}}")
    published(cluster, "leave-1")
    fleet_file.write_text("{stay-1: {count: 1, memoryMiB: 1}}")
    wait.until(lambda: "node leave-1 is no longer served" in agent.log, what="leave-1 dropped", timeout_s=PATIENCE_S)
    last = heartbeat(cluster, "leave-1")
    alive = heartbeat(cluster, "stay-1")
    for _ in range(2):
        alive = await_heartbeat(cluster, "stay-1", other_than=alive)
    assert heartbeat(cluster, "leave-1") == last
    assert published(cluster, "leave-1")


def test_sigterm_ends_the_agent_cleanly(
    cluster: Layout, add_node: Callable[[str], None], start_agent: Callable[[str], Any]
) -> None:
    """The exit code is 0, and the log has no traceback."""
    add_node("end-1")
    agent = start_agent("end-1: {count: 1, memoryMiB: 1}")
    published(cluster, "end-1")
    assert agent.end() == 0
    assert "Traceback" not in agent.log
