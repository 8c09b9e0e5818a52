"""Tranche's processes in the lab, each with the identity and the permissions that it has in any cluster."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

from allocation.names import SYSTEM_NAMESPACE
from lab import fleet, health, kubeconfig, kubectl, ports, scheduler_service, wait
from lab.files import write_private
from lab.layout import Port
from lab.processes import Daemon

if TYPE_CHECKING:
    from pathlib import Path

    from lab.layout import Layout

LAB_NAMESPACE = "tranche-lab"


@dataclass(frozen=True, slots=True)
class Component:
    """One of Tranche's processes.

    Attributes:
        name: the name of its daemon.
        account: namespace and name of its ServiceAccount.
        arguments: the arguments after `python -m`.
        listens: its ports.
        ready: its readiness URL, or empty if it has none.
    """

    name: str
    account: tuple[str, str]
    arguments: tuple[str, ...]
    listens: tuple[Port, ...] = ()
    ready: str = ""


def component(layout: Layout, name: str) -> Component:
    """Return the process with a name."""
    return next(each for each in all_components(layout) if each.name == name)


def all_components(layout: Layout) -> tuple[Component, ...]:
    """Return all processes, in the order in which they start."""

    def url(port: Port, scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{layout.port(port)}/readyz"

    config = ("--config", str(_configuration(layout)))
    return (
        Component("simulated-nodes", (LAB_NAMESPACE, "simulated-nodes"), ("lab.simulated", *fleet.SIMULATED_NODES)),
        Component(
            "local-provisioner",
            (LAB_NAMESPACE, "local-provisioner"),
            ("lab.provisioner", str(layout.node / "volumes")),
        ),
        Component(
            "agent",
            # One process reports every node, so its token is not bound to a node (manifests/lab/fleet-agent.yaml).
            (LAB_NAMESPACE, "fleet-agent"),
            ("agent", *config),
            (Port.AGENT_METRICS,),
            url(Port.AGENT_METRICS),
        ),
        Component(
            "webhook",
            (SYSTEM_NAMESPACE, "tranche-webhook"),
            ("webhook", *config),
            (Port.WEBHOOK, Port.WEBHOOK_METRICS),
            url(Port.WEBHOOK, "https"),
        ),
        Component(
            "scheduler",
            (SYSTEM_NAMESPACE, "tranche-scheduler"),
            ("scheduler", *config),
            (Port.SCHEDULER, Port.SCHEDULER_API, Port.SCHEDULER_UI),
            url(Port.SCHEDULER),
        ),
    )


def up(layout: Layout, *, real_node: bool) -> None:
    """Start the processes that do not run, and wait until all are ready."""
    fleet_file = fleet.write(layout, real_node=real_node)
    address = scheduler_service.address(layout)
    configuration = {
        "webhook": {
            "host": "127.0.0.1",
            "port": layout.port(Port.WEBHOOK),
            "metrics_port": layout.port(Port.WEBHOOK_METRICS),
            "dns_names": ["localhost"],
            "ip_addresses": ["127.0.0.1"],
            "certificates": {"canary_name": "localhost"},
            "runtime_class_name": "nvidia",
            "drain_seconds": 0.0,
        },
        "scheduler": {
            "port": layout.port(Port.SCHEDULER),
            "namespace_api": {"host": address or "127.0.0.1", "port": layout.port(Port.SCHEDULER_API)},
            "ui": {"enabled": True, "exposed": True, "port": layout.port(Port.SCHEDULER_UI)},
            # A lab has one replica, so it does not need the cautious default timeouts.
            "election": {"lease_seconds": 5.0, "renew_deadline_seconds": 4.0, "retry_seconds": 0.5},
            "request_timeout_seconds": 3.0,
        },
        "agent": {
            "fleet_file": str(fleet_file),
            "publish_seconds": 2.0,
            "metrics_address": "127.0.0.1",
            "metrics_port": layout.port(Port.AGENT_METRICS),
        },
    }
    write_private(_configuration(layout), yaml.safe_dump(configuration, sort_keys=False))
    publish(layout)
    components = all_components(layout)
    for component in components:
        start(layout, component)
    for component in components:
        wait.until(
            functools.partial(is_ready, component),
            what=f"{component.name} ready",
            daemons=[Daemon(layout, component.name), Daemon(layout, "kube-apiserver")],
        )


def publish(layout: Layout) -> None:
    """Create the objects of an installation with pods: the ConfigMap, and the scheduler's Service."""
    metadata = {"name": "tranche", "namespace": SYSTEM_NAMESPACE}
    data = {"config.yaml": _configuration(layout).read_text(encoding="utf-8")}
    kubectl.apply(layout, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    if address := scheduler_service.address(layout):
        scheduler_service.publish(layout, address)


def start(layout: Layout, component: Component) -> None:
    """Start a process unless it runs with a valid token; restart it if its token has become invalid.

    A token becomes invalid with its ServiceAccount or namespace, even if one of the same name is created later.
    """
    daemon = Daemon(layout, component.name)
    namespace, account = component.account
    if daemon.is_running and not kubeconfig.is_valid(layout, namespace=namespace, name=account):
        daemon.stop()
    if not daemon.is_running:
        ports.require_free(layout, component.listens)
        start_replica(layout, component, name=component.name)


def start_replica(layout: Layout, component: Component, *flags: str, name: str) -> Daemon:
    """Start a process under a name, with the flags that a second replica needs to run next to the first."""
    namespace, account = component.account
    identity = kubeconfig.service_account_kubeconfig(layout, namespace=namespace, name=account)
    daemon = Daemon(layout, name)
    daemon.start([sys.executable, "-m", *component.arguments, "--kubeconfig", str(identity), *flags])
    return daemon


def is_ready(component: Component) -> bool:
    """Whether the readiness endpoint of a process returns 200; without an endpoint it counts as ready."""
    return not component.ready or health.probe(component.ready)


def status(layout: Layout) -> list[tuple[str, str]]:
    """Return each process and its state."""

    def state(component: Component) -> str:
        pid = Daemon(layout, component.name).pid
        if pid is None:
            return "not running"
        return f"pid {pid}, {'ready' if is_ready(component) else 'not ready'}"

    return [(component.name, state(component)) for component in all_components(layout)]


def _configuration(layout: Layout) -> Path:
    return layout.config / "tranche.yaml"
