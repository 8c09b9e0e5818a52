"""A cluster whose simulated nodes can go to DRA: the component manifests/dra, an agent, the loop and kube-scheduler."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from allocation.names import SYSTEM_NAMESPACE
from lab import components, kubeconfig, manifests, wait
from lab import namespace as node_namespace
from lab.client import client
from lab.components import LAB_NAMESPACE, Component
from lab.files import write_private
from lab.layout import Port
from lab.processes import Daemon
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lab.client import Client
    from lab.layout import Layout
    from tests.system.conftest import Namespace

ROOT: Final = Path(__file__).parents[3]
AGENT: Final = "dra-agent"
CARDS: Final = 4
CARD_MIB: Final = 81920
SETTLE_S: Final = 1.0
LABEL: Final = "gpu.scheduling/allocator"
MODEL: Final = "NVIDIA H100 80GB HBM3"
CLASS: Final = "gpu.scheduling"
API: Final = "resource.k8s.io/v1"
Object = dict[str, Any]


def up(layout: Layout, *nodes: str, alone: str = "") -> None:
    """Start Tranche with these simulated nodes; the node `alone` has no agent yet (`start_agent`)."""
    manifests.install(layout)
    component = manifests.ROOT / "dra"
    objects = [each for file in ("agent.yaml", "class.yaml") for each in manifests.read((component / file).read_text())]
    client(layout).apply(*objects, *(_of_the_fleet(each) for each in objects if "subjects" in each))
    fleet = write_private(layout.config / "fleet.yaml", _fleet(*nodes))
    configuration = {
        "webhook": {
            "host": "127.0.0.1",
            "port": layout.port(Port.WEBHOOK),
            "metrics_port": layout.port(Port.WEBHOOK_METRICS),
            "dns_names": ["localhost"],
            "ip_addresses": ["127.0.0.1"],
            "drain_seconds": 0.0,
        },
        "scheduler": {
            "port": layout.port(Port.SCHEDULER),
            "namespace_api": {"port": layout.port(Port.SCHEDULER_API)},
            "ui": {"enabled": False, "exposed": False},
            "election": {"lease_seconds": 5.0, "renew_deadline_seconds": 4.0, "retry_seconds": 0.5},
            "request_timeout_seconds": 3.0,
        },
        "agent": {
            "fleet_file": str(fleet),
            "allocator": "label",
            "dra_settle_seconds": SETTLE_S,
            "metrics_address": "127.0.0.1",
            "metrics_port": layout.port(Port.AGENT_METRICS),
        },
    }
    write_private(layout.config / "tranche.yaml", yaml.safe_dump(configuration))
    simulated = Component(
        "simulated-nodes", (LAB_NAMESPACE, "simulated-nodes"), ("lab.simulated", *nodes, *filter(None, [alone]))
    )
    started = [simulated, *(components.component(layout, name) for name in ("agent", "webhook", "scheduler"))]
    for each in started:
        components.start(layout, each)
    for each in started:
        wait.until(
            lambda each=each: components.is_ready(each),
            what=f"{each.name} ready",
            timeout_s=PATIENCE_S,
            daemons=[Daemon(layout, each.name)],
        )


def start_agent(layout: Layout, node: str, folder: Path) -> Daemon:
    """Start the agent of a simulated node; the folders of its kubelet and its runtime are in `folder`."""
    return _start_agent(layout, _agent(layout, node, folder / "plugin", folder / "registry", folder / "cdi"))


def start_agent_of_real_node(layout: Layout) -> Daemon:
    """Start the agent of the real node, beside its kubelet, with the folders that both have by default."""
    plugins, registrations = layout.kubelet / "plugins" / CLASS, layout.kubelet / "plugins_registry"
    command = _agent(layout, layout.node_name, plugins, registrations, layout.cdi_specs)
    return _start_agent(layout, node_namespace.inside(layout, command))


def _start_agent(layout: Layout, command: list[str | Path]) -> Daemon:
    daemon = Daemon(layout, AGENT)
    daemon.start(command, env={"PYTHONPATH": str(ROOT)})
    return daemon


def _agent(layout: Layout, node: str, plugin: Path, registrations: Path, cdi: Path) -> list[str | Path]:
    """Return the command of the agent of one node, which has the rights of the component and a token of its node."""
    identity = kubeconfig.service_account_kubeconfig(
        layout, namespace=SYSTEM_NAMESPACE, name="tranche-agent", node=node
    )
    fleet = write_private(layout.config / f"fleet-{node}.yaml", _fleet(node))
    return [
        *(sys.executable, "-m", "agent", "--config", layout.config / "tranche.yaml", "--kubeconfig", identity),
        *("--node-name", node, "--fleet-file", fleet, "--metrics-port", "0", "--cdi-folder", cdi),
        *("--dra-plugin-folder", plugin, "--dra-registration-folder", registrations),
    ]


def _of_the_fleet(shipped: Object) -> Object:
    """Return a binding of the component for the lab's agent, which reports all nodes."""
    name = f"tranche-lab-{shipped['metadata']['name']}"
    subjects = [{"kind": "ServiceAccount", "name": "fleet-agent", "namespace": LAB_NAMESPACE}]
    return {**shipped, "metadata": {**shipped["metadata"], "name": name}, "subjects": subjects}


def _fleet(*nodes: str) -> str:
    card: Object = {
        "count": CARDS,
        "memoryMiB": CARD_MIB,
        "model": MODEL,
        "island": ["a", "a", "b", "b"],
    }
    return yaml.safe_dump(dict.fromkeys(nodes, card), default_flow_style=False)


def want(api: Client, node: str, allocator: str | None) -> None:
    """Label a node with the allocator that it should have, or remove the label."""
    api.patch("nodes", node, {"metadata": {"labels": {LABEL: allocator}}})


def until(api: Client, node: str, allocator: str) -> None:
    """Wait until a node's status has an allocator; a node of DRA has its slice as well, and one of the ledger none."""

    def has(statuses: Mapping[str, Any]) -> bool:
        return bool(statuses.get(node, {}).get("status", {}).get("allocator") == allocator)

    api.until(has, "gpunodestatuses", what=f"allocator {allocator} of {node}", timeout_s=PATIENCE_S)
    if allocator != "draining":
        api.until(
            lambda slices: (f"gpu.scheduling-{node}" in slices) == (allocator == "dra"),
            "resourceslices",
            what=f"slice of {node} with allocator {allocator}",
            timeout_s=PATIENCE_S,
        )


def request(name: str = "gpu", *, count: int = 1, **capacity: str) -> Object:
    """Return a request for cards, or for parts of them."""
    exactly: Object = {"deviceClassName": CLASS, "count": count}
    if capacity:
        exactly["capacity"] = {"requests": capacity}
    return {"name": name, "exactly": exactly}


def claim(name: str, *requests: Object, **devices: Any) -> Object:
    """Return a claim; `devices` are further fields, such as constraints."""
    spec = {"devices": {"requests": requests or [request()], **devices}}
    return {"apiVersion": API, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}


def template(name: str, *requests: Object, **devices: Any) -> Object:
    """Return a template of such a claim."""
    made = claim(name, *requests, **devices)
    return {**made, "kind": "ResourceClaimTemplate", "spec": {"spec": made["spec"]}}


def pod(name: str, *, node: str, **source: str) -> Object:
    """Return a pod on a node, whose claim has `resourceClaimName` or `resourceClaimTemplateName`."""
    container = {
        "name": "main",
        "image": "tranche.local/busybox:lab",
        "resources": {"claims": [{"name": "cards"}]},
    }
    spec = {
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": {"kubernetes.io/hostname": node},
        "containers": [container],
        "resourceClaims": [{"name": "cards", **source}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def devices(found: Mapping[str, Any], node: str) -> list[str]:
    """Return the cards of a node that a claim has."""
    allocation = found.get("status", {}).get("allocation") or {}
    results = allocation.get("devices", {}).get("results", ())
    return [each["device"] for each in results if (each["driver"], each["pool"]) == (CLASS, node)]


def claimed(tenant: Namespace, name: str, node: str, *requests: Object, **fields: Any) -> list[str]:
    """Create a claim and its pod, wait until it has its cards, and return them."""
    tenant.create(claim(name, *requests, **fields), pod(name, node=node, resourceClaimName=name))

    def found(claims: Mapping[str, Any]) -> list[str]:
        return devices(claims.get(name, {}), node)

    return tenant.until(found, "resourceclaims", what=f"cards of claim {name}")


def remove(tenant: Namespace) -> None:
    """Delete the pods of a tenant, and then its claims."""
    tenant.empty()
    for kind in ("resourceclaims", "resourceclaimtemplates"):
        tenant.api.delete_all(kind, namespace=tenant.name)


def in_both_worlds(api: Client, node: str) -> Iterator[str]:
    """Yield the claims that have cards of a node while pods of the ledger have some.

    A claim that has them before the pods are read and afterwards has had them meanwhile.
    """
    before, pods, after = _holders(api, node), _ledger_pods(api, node), _holders(api, node)
    if pods:
        yield from (f"claim {each} beside pods {sorted(pods)}" for each in sorted(before & after))


def _holders(api: Client, node: str) -> set[str]:
    return {each["metadata"]["uid"] for each in api.list("resourceclaims") if devices(each, node)}


def _ledger_pods(api: Client, node: str) -> set[str]:
    return {
        each["metadata"]["name"]
        for each in api.list("pods", fields=f"spec.nodeName={node}")
        if "gpu.scheduling/allocation" in each["metadata"].get("annotations", {})
        and each["status"].get("phase") not in ("Succeeded", "Failed")
    }
