"""The agent restores what other clients change in its published objects."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from lab import wait
from lab.client import client
from lab.layout import Layout
from tests.agent.support.cluster_view import REGISTER, await_devices, await_heartbeat, heartbeat, published, register
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.apiserver


@pytest.fixture
def served(cluster: Layout, add_node: Callable[[str], None], run_agent: Callable[..., Any], fleet_file: Any) -> Any:
    """Return a function that starts an agent for one node and waits until it has published the node."""

    def serve(node: str) -> Any:
        add_node(node)
        fleet_file.write_text(f"{{{node}: {{count: 2, memoryMiB: 100}}, other-1: {{count: 1, memoryMiB: 1}}}}")
        agent = run_agent("--fleet-file", str(fleet_file), NODE_NAME=node)
        wait.until(lambda: agent.http("/readyz")[0] == 200, what="ready", timeout_s=PATIENCE_S)
        return agent

    return serve


def _await_register(cluster: Layout, node: str, value: str | None) -> None:
    wait.until(lambda: register(cluster, node) == value, what="register annotation", timeout_s=PATIENCE_S)


@pytest.mark.parametrize("value", [None, "[]"])
def test_changed_annotation_is_restored(cluster: Layout, served: Callable[[str], Any], value: str | None) -> None:
    """HAMi's tools read the annotation, so neither its removal nor a wrong value lasts."""
    agent = served("repair-1")
    before = register(cluster, "repair-1")
    assert before is not None
    client(cluster).patch("node", "repair-1", {"metadata": {"annotations": {REGISTER: value}}})
    _await_register(cluster, "repair-1", before)
    assert "node repair-1: another client changed the register annotation; writing again" in agent.log
    assert "tranche_agent_repairs_total 1.0" in agent.http("/metrics")[1]


def test_changed_status_is_restored(cluster: Layout, served: Callable[[str], Any]) -> None:
    """Changed and invented cards are replaced soon; fields that other clients own stay."""
    served("repair-2")
    before = published(cluster, "repair-2")["status"]["devices"]
    devices = [
        before[0] | {"memoryMiB": 999, "inUseBy": ["pod-1"]},
        before[1],
        {"id": 2, "uuid": "GPU-invented", "memoryMiB": 100},
    ]
    client(cluster).patch("gns", "repair-2", {"status": {"devices": devices, "total": 3}}, subresource="status")
    repaired = [before[0] | {"inUseBy": ["pod-1"]}, before[1]]
    await_devices(cluster, "repair-2", lambda devices: devices == repaired, what="the agent's devices")
    assert published(cluster, "repair-2")["status"]["total"] == 2


def test_changed_delivery_is_restored(cluster: Layout, served: Callable[[str], Any]) -> None:
    """The scheduler writes Bindings by it; an agent that sees no toolkit reports the default."""
    agent = served("repair-6")
    assert published(cluster, "repair-6")["status"]["delivery"] == {"mode": "cdi"}
    client(cluster).patch("gns", "repair-6", {"status": {"delivery": {"mode": "env"}}}, subresource="status")
    wait.until(
        lambda: published(cluster, "repair-6")["status"]["delivery"] == {"mode": "cdi"},
        what="restored delivery",
        timeout_s=PATIENCE_S,
    )
    assert "tranche_agent_repairs_total 1.0" in agent.http("/metrics")[1]


def test_changed_connections_are_restored(cluster: Layout, served: Callable[[str], Any], fleet_file: Any) -> None:
    """Links, ports and adapters that other clients change or add do not last: pods would be placed by them."""
    served("repair-7")
    content = "{count: 3, memoryMiB: 1, links: [[0, 1, 50]], fabric: {hcas: [{name: mlx5_0, ports: [{number: 1}]}]}}"
    fleet_file.write_text(f"repair-7: {content}")
    before = wait.until(
        lambda: "fabric" in (status := published(cluster, "repair-7")["status"]) and status,
        what="the declared fabric",
        timeout_s=PATIENCE_S,
    )
    fabric = {"hcas": [{"name": "mlx5_0", "ports": [{"number": 1}, {"number": 2}]}, {"name": "invented"}]}
    devices = [before["devices"][0] | {"links": [{"id": 1, "bandwidthGBps": 99}, {"id": 2, "bandwidthGBps": 99}]}]
    for change in ({"fabric": fabric}, {"devices": [*devices, *before["devices"][1:]]}):
        client(cluster).patch("gns", "repair-7", {"status": change}, subresource="status")
        wait.until(
            lambda: published(cluster, "repair-7")["status"] == before, what="restored status", timeout_s=PATIENCE_S
        )


def test_invented_connections_are_removed(cluster: Layout, served: Callable[[str], Any]) -> None:
    """What other clients add where the agent reports nothing does not last either."""
    served("repair-8")
    before = published(cluster, "repair-8")["status"]
    first, *others = before["devices"]
    invented = first | {"numa": 1, "links": [{"id": 1, "bandwidthGBps": 99}], "pcieGroups": [0], "inUseBy": ["pod-1"]}
    client(cluster).patch(
        "gns",
        "repair-8",
        {"status": {"devices": [invented, *others], "fabric": {"hcas": [{"name": "mlx5_0"}]}}},
        subresource="status",
    )
    repaired = before | {"devices": [first | {"inUseBy": ["pod-1"]}, *others]}
    wait.until(
        lambda: published(cluster, "repair-8")["status"] == repaired, what="restored status", timeout_s=PATIENCE_S
    )


def test_deleted_status_is_created_again(cluster: Layout, served: Callable[[str], Any]) -> None:
    """Without its GpuNodeStatus a node has no cards for the scheduler."""
    served("repair-3")
    before = published(cluster, "repair-3")
    client(cluster).delete("gns", "repair-3")
    after = published(cluster, "repair-3")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["status"] == before["status"]


def test_recreated_node_is_annotated_again(
    cluster: Layout, served: Callable[[str], Any], add_node: Callable[[str], None]
) -> None:
    """Without its Node the agent is not ready and renews no heartbeat; a new Node gets everything at once."""
    agent = served("repair-4")
    before = register(cluster, "repair-4")
    client(cluster).delete("node", "repair-4")
    wait.until(
        lambda: agent.http("/readyz") == (503, "not published yet (1): repair-4\n"),
        what="not ready",
        timeout_s=PATIENCE_S,
    )
    last = heartbeat(cluster, "repair-4")
    add_node("repair-4")
    _await_register(cluster, "repair-4", before)
    await_heartbeat(cluster, "repair-4", other_than=last)
    wait.until(lambda: agent.http("/readyz") == (200, "ok\n"), what="ready", timeout_s=PATIENCE_S)


def test_agent_of_one_node_watches_only_that_node(cluster: Layout, served: Callable[[str], Any]) -> None:
    """The API server does not send every node of the cluster to each agent of a DaemonSet."""
    served("repair-5")
    wanted = "fieldSelector=metadata.name%3Drepair-5"

    def watched() -> bool:
        events = [json.loads(line) for line in cluster.audit_log.read_text().splitlines()]
        uris = [event["requestURI"] for event in events if event["verb"] == "watch" and wanted in event["requestURI"]]
        return {uri.split("?")[0].rsplit("/", 1)[1] for uri in uris} == {"nodes", "gpunodestatuses"}

    wait.until(watched, what="watches of one node", timeout_s=PATIENCE_S)
