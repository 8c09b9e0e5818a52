"""The cluster under test: a real control plane, the replicas of each process, and a proxy in front of each replica."""

import asyncio
import random
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from chaos import audit, settings
from chaos.clock import Clocks
from chaos.interference import Interference
from chaos.load import URGENT
from chaos.proxy import Proxy, context
from chaos.replica import Replica
from chaos.settings import Settings, Timing
from lab import components, control_plane, kubeconfig, manifests, pki, wait
from lab.balancer import Balancer
from lab.client import client
from lab.components import LAB_NAMESPACE
from lab.files import write_private
from lab.layout import Layout, Port
from lab.processes import Daemon

NAMESPACE = "chaos"
_PATIENCE_S = 90.0
_FIRST_FREE = 20
"""From this offset on, the ports of a lab's block are for replicas and proxies."""
_ACCOUNTS = {
    "scheduler": ("tranche-system", "tranche-scheduler"),
    "webhook": ("tranche-system", "tranche-webhook"),
    "agent": (LAB_NAMESPACE, "fleet-agent"),
}


@dataclass
class World:
    """The cluster into which faults are injected.

    Attributes:
        layout: paths and ports of the cluster.
        since: the size of its audit log when the world began.
        schedulers: two replicas, one of which leads.
        webhooks: two replicas behind `balancer`.
        agents: one agent, which reports for every node.
        clocks: the wall clock of each process.
    """

    layout: Layout
    since: int
    clocks: Clocks
    schedulers: list[Replica] = field(default_factory=list)
    webhooks: list[Replica] = field(default_factory=list)
    agents: list[Replica] = field(default_factory=list)
    balancer: Balancer = field(default_factory=lambda: Balancer(()))

    @property
    def replicas(self) -> list[Replica]:
        """All processes under test."""
        return [*self.schedulers, *self.webhooks, *self.agents]

    def kubelet(self, node: str) -> components.Component:
        """Return the process that simulates the kubelet of a node."""
        name = f"kubelet-{node}"
        return components.Component(name, (LAB_NAMESPACE, "simulated-nodes"), ("lab.simulated", node))

    def heal(self) -> None:
        """Start every replica that does not run, and let all traffic through. Idempotent."""
        for replica in self.replicas:
            replica.proxy.interference.heal()
            replica.proxy.release()
            replica.start()


@asynccontextmanager
async def running(layout: Layout, config: Settings) -> AsyncIterator[World]:
    """Yield the cluster, once it is ready."""
    await asyncio.to_thread(_control_plane, layout)
    world = World(layout, audit.size(layout.audit_log), Clocks(layout.root / "clocks"))
    draw = random.Random(config.seed)  # noqa: S311 -- not a secret
    configuration = await asyncio.to_thread(_configure, layout, config.timing)
    trusted = ssl.create_default_context(cafile=str(pki.certificate(layout, pki.CLUSTER_CA)))
    shown = context(
        certificate=str(pki.certificate(layout, "kube-apiserver")), key=str(pki.key(layout, "kube-apiserver"))
    )
    free = iter(range(layout.base_port + _FIRST_FREE, layout.base_port + 100))
    async with AsyncExitStack() as stack:

        async def replica(role: str, name: str, http: int, *flags: str) -> Replica:
            proxy = Proxy(server=layout.server, interference=Interference(random.Random(draw.random())))  # noqa: S311
            port = next(free)
            await stack.enter_async_context(proxy.listening(port, shown=shown, trusted=trusted))
            identity = await asyncio.to_thread(_identity, layout, role, name, port)
            argv = (sys.executable, "-m", role, "--config", str(configuration), "--kubeconfig", str(identity), *flags)
            return Replica(Daemon(layout, name), role, argv, f"http://127.0.0.1:{http}", proxy, world.clocks.env(name))

        for number in range(2):
            http = next(free)
            world.schedulers.append(await replica("scheduler", f"scheduler-{number}", http, "--port", str(http)))
        served = []
        for number in range(2):
            http, tls = next(free), next(free)
            served.append(tls)
            flags = ("--metrics-port", str(http), "--port", str(tls))
            world.webhooks.append(await replica("webhook", f"webhook-{number}", http, *flags))
        http = layout.port(Port.AGENT_METRICS)
        world.agents.append(await replica("agent", "agent", http))
        world.balancer = Balancer(
            tuple(f"127.0.0.1:{port}" for port in served), tuple(f"{each.http}/readyz" for each in world.webhooks)
        )
        await stack.enter_async_context(world.balancer.listening(layout.port(Port.WEBHOOK)))
        await asyncio.to_thread(_start, world)
        try:
            yield world
        finally:
            # Before their proxies: an end of a TLS connection that lives or is frozen keeps the other one.
            await asyncio.gather(*(asyncio.to_thread(each.kill) for each in world.replicas))


def _control_plane(layout: Layout) -> None:
    control_plane.up(layout, kube_scheduler=False)
    manifests.install(layout)
    opted_in = {"gpu.scheduling/injection": "enabled"}
    client(layout).apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": opted_in}},
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": URGENT},
            "value": 1000,
        },
    )


def _configure(layout: Layout, timing: Timing) -> Path:
    fleet = layout.config / "fleet.yaml"
    card = {"count": settings.CARDS, "memoryMiB": settings.CARD_MIB, "slots": settings.SLOTS, "model": "NVIDIA H100"}
    write_private(fleet, yaml.safe_dump({node: dict(card) for node in settings.NODES}))
    content: dict[str, Any] = {
        "webhook": {
            "host": "127.0.0.1",
            "dns_names": ["localhost"],
            "ip_addresses": ["127.0.0.1"],
            "certificates": {"canary_name": "localhost"},
            "drain_seconds": 3.0,
        },
        "scheduler": {
            "election": msgspec.to_builtins(timing.election),
            "request_timeout_seconds": timing.bind_seconds,
            "recount_seconds": 20.0,
            "relist_seconds": 60.0,
        },
        "agent": {
            "fleet_file": str(fleet),
            "publish_seconds": 2.0,
            "heartbeat_lease_seconds": 9,
            "metrics_address": "127.0.0.1",
            "metrics_port": layout.port(Port.AGENT_METRICS),
        },
    }
    return write_private(layout.config / "tranche.yaml", yaml.safe_dump(content, sort_keys=False))


def _identity(layout: Layout, role: str, name: str, port: int) -> Path:
    """Write the kubeconfig of a replica: its role's account, through the proxy on `port`."""
    namespace, account = _ACCOUNTS[role]
    direct = kubeconfig.service_account_kubeconfig(layout, namespace=namespace, name=account)
    content = yaml.safe_load(direct.read_text())
    (cluster,) = content["clusters"]
    cluster["cluster"]["server"] = f"https://127.0.0.1:{port}"
    return write_private(layout.component_kubeconfig(f"{name}-by-proxy"), yaml.safe_dump(content))


def _start(world: World) -> None:
    for node in settings.NODES:
        components.start(world.layout, world.kubelet(node))
    for replica in world.replicas:
        replica.start()
    for replica in world.replicas:
        replica.until_ready()

    def reported() -> bool:
        items = client(world.layout).list("gpunodestatuses")
        return sum(1 for each in items if each.get("status", {}).get("total") == settings.CARDS) == len(settings.NODES)

    wait.until(reported, what="the cards of every node", timeout_s=_PATIENCE_S, daemons=[Daemon(world.layout, "agent")])
    wait.until(
        lambda: client(world.layout).list("serviceaccounts", namespace=NAMESPACE),
        what=f"ServiceAccount default in {NAMESPACE}",
        timeout_s=_PATIENCE_S,
    )
