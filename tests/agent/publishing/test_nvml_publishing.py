"""From NVML to the API server: the agent as a process that loads the stub in place of the driver's library."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allocation.inventory import Card
from lab import wait
from lab.layout import Layout
from tests.agent.support.cluster_view import as_scheduler, await_devices, await_heartbeat, await_registered, published
from tests.agent.support.containers import ID, UID, Procfs
from tests.nvml.stub import A100_MIG, DRIVER_NOT_LOADED, GPU_IS_LOST, MIB, Hardware, MigInstances, StubCard, cards
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.apiserver


@pytest.fixture
def serve(
    add_node: Callable[[str], None], run_agent: Callable[..., Any], nvml_library: Path, hardware: Hardware
) -> Callable[..., Any]:
    """Return a function that runs an agent for a node with the test's hardware."""

    def run(node: str, *arguments: str, **environment: str) -> Any:
        add_node(node)
        places = ("--hami-core-library", "", "--mps-pipe-directory", "")
        return run_agent(
            *("--node-name", node, *places, *arguments), LD_LIBRARY_PATH=str(nvml_library.parent), **environment
        )

    return run


def _health(devices: list[Any]) -> list[str]:
    return [device["health"] for device in devices]


def _healthy(cards: tuple[Card, ...]) -> list[bool]:
    return [card.healthy for card in cards]


def test_hardware_is_published(cluster: Layout, hardware: Hardware, serve: Callable[..., Any], tmp_path: Path) -> None:
    """The GpuNodeStatus has all that NVML reports; the register annotation has the fields that HAMi knows."""
    hardware.has(*cards(2))
    for card in hardware.cards:
        card.memory, card.numa = 81559 * MIB + 5, 1
        card.lines = [f"link {number} switch 00000000:C0:00.0 26562" for number in range(18)]
    hardware.write()
    (tmp_path / "pipes").mkdir()
    os.mkfifo(tmp_path / "pipes" / "control")
    daemon = os.open(tmp_path / "pipes" / "control", os.O_RDONLY | os.O_NONBLOCK)
    try:
        pipes = ("--mps-pipe-directory", str(tmp_path / "pipes"))
        serve("nvml-1", *pipes, "--slots", "4", "--sysfs", str(tmp_path / "sys"))
        status = published(cluster, "nvml-1")["status"]
    finally:
        os.close(daemon)
    assert status["driverVersion"] == "570.86.15"
    assert status["isolation"] == ["none", "mps"]
    assert {each["isolation"]: each["message"] for each in status["isolationProblems"]} == {
        "hami-core": "agent.hami_core_library is empty: withheld",
        "cuda": "the driver must be 615 or newer, and is 570.86.15",
    }
    assert status["total"] == 2
    assert status["devices"][1] == {
        "id": 1,
        "uuid": "GPU-1",
        "memoryMiB": 81559,
        "cores": 1000,
        "slots": 4,
        "model": "NVIDIA H100 80GB HBM3",
        "numa": 1,
        "mode": "hami-core",
        "health": "Healthy",
        "message": "",
        "bandwidthGBps": 478,
        "island": "nvlink-0",
    }
    registered = await_registered(cluster, "nvml-1", lambda cards: len(cards) == 2, what="two cards for HAMi")
    assert [(card.uuid, card.memory_mib, card.numa, card.slots) for card in registered] == [
        ("GPU-0", 81559, 1, 4),
        ("GPU-1", 81559, 1, 4),
    ]


def test_one_unhealthy_card_is_published_and_recovers(
    cluster: Layout, hardware: Hardware, serve: Callable[..., Any]
) -> None:
    """One unhealthy card of eight is published with its reason, the others stay healthy, and it recovers."""
    hardware.has(*cards(8))
    serve("nvml-2", "--quiet-seconds", "1")
    await_devices(cluster, "nvml-2", lambda devices: _health(devices) == ["Healthy"] * 8, what="eight healthy cards")
    hardware.cards[7].lines = [f"error * {GPU_IS_LOST}"]
    hardware.write()
    devices = await_devices(cluster, "nvml-2", lambda devices: "Unhealthy" in _health(devices), what="a lost card")
    assert _health(devices) == ["Healthy"] * 7 + ["Unhealthy"]
    assert "GPU is lost" in devices[7]["message"]
    lost = [True] * 7 + [False]
    await_registered(cluster, "nvml-2", lambda cards: _healthy(cards) == lost, what="the lost card for HAMi")
    hardware.cards[7].lines = []
    hardware.write()
    await_devices(cluster, "nvml-2", lambda devices: _health(devices) == ["Healthy"] * 8, what="its recovery")


def test_all_unhealthy_cards_are_published_and_recover(
    cluster: Layout, hardware: Hardware, serve: Callable[..., Any]
) -> None:
    """While the driver is away all cards are published as unhealthy, and the agent keeps its heartbeat."""
    hardware.has(*cards(8))
    serve("nvml-3", "--quiet-seconds", "1")
    published(cluster, "nvml-3")
    hardware.lines = [f"error * {DRIVER_NOT_LOADED}"]
    hardware.write()
    await_devices(
        cluster, "nvml-3", lambda devices: _health(devices) == ["Unhealthy"] * 8, what="eight unhealthy cards"
    )
    await_heartbeat(cluster, "nvml-3", other_than=await_heartbeat(cluster, "nvml-3"))
    hardware.lines = []
    hardware.write()
    await_devices(cluster, "nvml-3", lambda devices: _health(devices) == ["Healthy"] * 8, what="their recovery")


def test_cards_stay_published_without_a_driver(cluster: Layout, hardware: Hardware, serve: Callable[..., Any]) -> None:
    """An agent that starts without a driver keeps the cards of the last one, unhealthy, with state and error count."""
    hardware.has(StubCard("GPU-m", lines=[*A100_MIG]), StubCard("GPU-1", pci="00000000:19:00.0"))
    MigInstances(hardware).has("GPU-m 7 0 19 6 1 MIG-m-1")
    first = serve("nvml-8")
    await_devices(cluster, "nvml-8", lambda devices: len(devices) == 3, what="two cards and an instance")
    first.end()
    before = published(cluster, "nvml-8")["status"]
    assert "state" not in before
    hardware.lines = [f"error nvmlInitWithFlags {DRIVER_NOT_LOADED}"]
    hardware.write()
    agent = serve("nvml-8", "--quiet-seconds", "0.2")
    devices = await_devices(cluster, "nvml-8", lambda devices: "Healthy" not in _health(devices), what="the state")
    status = published(cluster, "nvml-8")["status"]
    assert (status["state"], status["message"]) == ("DriverMissing", "nvmlInit: Driver Not Loaded")
    marks = {"health": "Unhealthy", "message": "nvmlInit: Driver Not Loaded"}
    assert devices == [device | marks for device in before["devices"]]
    await_registered(cluster, "nvml-8", lambda cards: _healthy(cards) == [False] * 2, what="both cards for HAMi")
    page = agent.http("/metrics")[1]
    assert 'tranche_agent_node_without_cards{node="nvml-8",state="DriverMissing"} 1.0' in page
    assert "tranche_agent_inventory_errors_total 0.0" not in page
    hardware.lines = []
    hardware.write()
    await_devices(cluster, "nvml-8", lambda devices: _health(devices) == ["Healthy"] * 3, what="the driver's return")
    assert "state" not in published(cluster, "nvml-8")["status"]


def test_state_of_a_node_follows_its_driver(cluster: Layout, hardware: Hardware, serve: Callable[..., Any]) -> None:
    """A running agent publishes the state when the driver goes, and when it lists no card, and removes it after."""
    hardware.has(*cards(1))
    serve("nvml-9", "--quiet-seconds", "0.2")
    published(cluster, "nvml-9")

    def state() -> Any:
        return published(cluster, "nvml-9")["status"].get("state")

    hardware.lines = [f"error * {DRIVER_NOT_LOADED}"]
    hardware.write()
    wait.until(lambda: state() == "DriverMissing", what="DriverMissing", timeout_s=PATIENCE_S)
    hardware.lines = []
    hardware.has()
    wait.until(lambda: state() == "NoCards", what="NoCards", timeout_s=PATIENCE_S)
    hardware.has(*cards(1))
    wait.until(lambda: state() is None, what="no state", timeout_s=PATIENCE_S)


def test_critical_event_is_published_at_once(cluster: Layout, hardware: Hardware, serve: Callable[..., Any]) -> None:
    """An XID does not wait for the next regular reading, which is an hour away here."""
    hardware.has(*cards(2))
    agent = serve("nvml-4", "--publish-seconds", "3600")
    published(cluster, "nvml-4")
    wait.until(lambda: agent.http("/readyz")[0] == 200, what="ready", timeout_s=PATIENCE_S)
    hardware.cards[1].lines = ["event 1 xid 79"]
    hardware.write()
    devices = await_devices(cluster, "nvml-4", lambda devices: "Unhealthy" in _health(devices), what="XID 79")
    assert [device["message"] for device in devices] == ["", "XID 79"]


def test_variable_selects_published_cards(cluster: Layout, hardware: Hardware, serve: Callable[..., Any]) -> None:
    """The agent's own environment limits the cards that it publishes."""
    hardware.has(*cards(4))
    serve("nvml-5", CUDA_VISIBLE_DEVICES="3,GPU-1")
    assert [device["uuid"] for device in published(cluster, "nvml-5")["status"]["devices"]] == ["GPU-1", "GPU-3"]


def test_requested_instances_are_created_and_destroyed(
    cluster: Layout, hardware: Hardware, serve: Callable[..., Any]
) -> None:
    """An instance in `spec` is created and reported with its request ID; once it leaves `spec` it is destroyed."""
    hardware.has(StubCard("GPU-m", name="NVIDIA A100-SXM4-40GB", memory=40960 * MIB, lines=[*A100_MIG]))
    instances = MigInstances(hardware)
    instances.has("GPU-m 7 0 19 6 1 MIG-m-1")
    agent = serve("nvml-7", "--mig-instances-by", "agent")
    await_devices(cluster, "nvml-7", lambda devices: len(devices) == 2, what="the card and its instance")

    def request(*requests: dict[str, Any]) -> None:
        as_scheduler(cluster).patch("gns", "nvml-7", {"spec": {"migInstances": requests}})

    place = {"start": 2, "size": 2}
    request({"id": "pod/0", "card": "GPU-m", "profile": "2g.10gb", "placement": place})
    devices = await_devices(cluster, "nvml-7", lambda devices: len(devices) == 3, what="a further instance")
    (created,) = (device["instance"] for device in devices if device.get("instance", {}).get("wish"))
    assert created == {
        "parent": "GPU-m",
        "profile": "2g.10gb",
        "placement": place,
        "gpuInstanceID": 8,
        "computeInstanceID": 0,
        "wish": "pod/0",
    }
    agent.end()
    serve("nvml-7", "--mig-instances-by", "agent")
    request()
    await_devices(cluster, "nvml-7", lambda devices: len(devices) == 2, what="the end of the created instance")
    assert instances.lines() == ["GPU-m 7 0 19 6 1 MIG-m-1"]
    (card,) = await_registered(cluster, "nvml-7", lambda cards: len(cards) == 1, what="the card for HAMi")
    assert (card.mode, card.slots, len(card.mig_profiles)) == ("mig", 7, 4)


def test_hanging_card_does_not_delay_the_exit(cluster: Layout, hardware: Hardware, serve: Callable[..., Any]) -> None:
    """SIGTERM ends the agent even while a driver call never returns."""
    hardware.has(*cards(2))
    agent = serve("nvml-6", "--probe-seconds", "0.2")
    published(cluster, "nvml-6")
    hardware.cards[1].lines = ["hang nvmlDeviceGetMemoryInfo"]
    hardware.write()
    devices = await_devices(cluster, "nvml-6", lambda devices: "Unhealthy" in _health(devices), what="a hanging card")
    assert [device["message"] for device in devices] == ["", "NVML has not responded within 0.2 s"]
    signalled_at = time.monotonic()
    assert agent.end() == 0
    assert time.monotonic() - signalled_at < 5
    assert "Traceback" not in agent.log


def test_agent_serves_and_exports_what_containers_use(
    hardware: Hardware, serve: Callable[..., Any], tmp_path: Path
) -> None:
    """At `/usage` for the scheduler, and as metrics."""
    hardware.has(*cards(1))
    hardware.cards[0].lines = [f"process 11 {MIB} compute GPU-0"]
    hardware.write()
    procfs = Procfs(tmp_path / "proc")
    procfs.runs(11)
    agent = serve("nvml-use", "--procfs", str(procfs.path), "--measure-seconds", "0.1")

    def container() -> Any:
        return next(iter(json.loads(agent.http("/usage")[1])["containers"]), None)

    measured = wait.until(container, what="a measurement", timeout_s=PATIENCE_S)
    assert (measured["uid"], measured["containerId"], measured["memoryBytes"]) == (UID, ID, MIB)
    labels = f'container_id="{ID}",device_uuid="GPU-0",node="nvml-use",uid="{UID}"'
    assert f"tranche_agent_container_memory_used_bytes{{{labels}}} 1.048576e+06\n" in agent.http("/metrics")[1]
