"""A cluster in extender mode: pairs of a stock kube-scheduler and the extender, each with its own host name."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from lab import binaries, components, health, kubeconfig, manifests, pki, wait
from lab.client import client
from lab.components import LAB_NAMESPACE
from lab.files import write_private
from lab.layout import Port
from lab.processes import Daemon
from tests.system.conftest import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from lab.layout import Layout

ACCOUNT = ("tranche-system", "tranche-scheduler")
CARDS = 8
CARD_MIB = 40_000
SOON_S = 10.0
"""After a change that kube-scheduler does not watch; by itself it tries a pod again after five minutes."""
_LEASE = {"leaseDuration": "8s", "renewDeadline": "6s", "retryPeriod": "1s"}
"""Of kube-scheduler; by default 15, 10 and 2 s, for which a test of an outage or of a failover would have to wait."""
_PORT_OFFSET = 40  # between the ports of two pairs


@dataclass(frozen=True)
class Pair:
    """One pair. It differs from manifests/extender in ports, in the kubeconfig, and in how long a Lease lasts."""

    layout: Layout
    number: int
    tls: bool = False
    """Whether the two processes use mutual TLS, as they would across hosts."""

    @property
    def host(self) -> str:
        """The host name that both processes see."""
        return f"pair-{self.number}"

    @property
    def extender(self) -> Daemon:
        """The process of the extender."""
        return Daemon(self.layout, f"extender-{self.number}")

    @property
    def kube_scheduler(self) -> Daemon:
        """The process of kube-scheduler."""
        return Daemon(self.layout, f"kube-scheduler-{self.number}")

    @property
    def url(self) -> str:
        """The URL of the extender."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self._port(Port.SCHEDULER)}"

    @property
    def certificate(self) -> tuple[Path, Path]:
        """Certificate and key of both processes."""
        return pki.certificate(self.layout, "kube-scheduler"), pki.key(self.layout, "kube-scheduler")

    def start(self) -> None:
        """Start both processes and wait until they serve. Several pairs elect a leader among themselves."""
        namespace, name = ACCOUNT
        identity = kubeconfig.service_account_kubeconfig(self.layout, namespace=namespace, name=name)
        configuration = self._configuration(str(identity))
        lease = configuration["leaderElection"]
        self._start(
            self.extender,
            *(sys.executable, "-m", "scheduler", "--config", str(self.layout.config / "tranche.yaml"), "--extender"),
            *("--port", str(self._port(Port.SCHEDULER)), "--kubeconfig", str(identity)),
            *("--namespace-api-port", str(self._port(Port.SCHEDULER_API))),
            *("--kube-scheduler-lease-namespace", lease["resourceNamespace"]),
            *("--kube-scheduler-lease-name", lease["resourceName"]),
            *(self._guard() if self.tls else ()),
        )
        write_private(self._file, yaml.safe_dump(configuration))
        self.start_kube_scheduler()

    def start_kube_scheduler(self) -> None:
        """Start kube-scheduler, which exits when it cannot renew its Lease; wait until both processes serve."""
        self._start(
            self.kube_scheduler,
            *(str(self.layout.bin / "kube-scheduler"), f"--config={self._file}", "--authentication-skip-lookup=true"),
            *("--bind-address=127.0.0.1", f"--secure-port={self._port(Port.KUBE_SCHEDULER)}", "--v=2"),
        )
        wait.until(
            lambda: health.probe(f"{self.url}/readyz"),
            what=f"{self.host} ready",
            timeout_s=PATIENCE_S,
            daemons=[self.extender, self.kube_scheduler],
        )

    def kill(self) -> None:
        """Kill both processes with SIGKILL."""
        for daemon in (self.kube_scheduler, self.extender):
            if daemon.pid is not None:
                os.kill(daemon.pid, signal.SIGKILL)
            daemon.stop()

    @property
    def _file(self) -> Path:
        return self.layout.config / f"{self.kube_scheduler.name}.yaml"

    def _configuration(self, identity: str) -> dict[str, Any]:
        content: dict[str, Any] = yaml.safe_load((manifests.ROOT / "extender" / "kube-scheduler.yaml").read_text())
        (extender,) = content["extenders"]
        extender["urlPrefix"] = self.url
        content["clientConnection"] = {"kubeconfig": identity}
        content["leaderElection"] |= _LEASE
        if self.tls:
            certificate, key = (str(file) for file in self.certificate)
            authority = str(pki.certificate(self.layout, pki.CLUSTER_CA))
            extender["enableHTTPS"] = True
            extender["tlsConfig"] = {"caFile": authority, "certFile": certificate, "keyFile": key}
        return content

    def _guard(self) -> tuple[str, ...]:
        certificate, key = self.certificate
        return (
            "--host=0.0.0.0",
            f"--serving-certificate-file={certificate}",
            f"--serving-key-file={key}",
            f"--serving-client-ca-file={pki.certificate(self.layout, pki.CLUSTER_CA)}",
            "--serving-client-names=system:kube-scheduler",
        )

    def _port(self, port: Port) -> int:
        return self.layout.port(port) + _PORT_OFFSET * self.number

    def _start(self, daemon: Daemon, *argv: str) -> None:
        daemon.start(["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', self.host, *argv])


def up(layout: Layout, nodes: list[str], *, provide: Callable[..., None] = binaries.provide) -> None:
    """Start Tranche on a cluster without a scheduler, with these simulated GPU nodes.

    `provide` links kube-scheduler into the folder of the lab.
    """
    provide(layout.bin, ["kube-scheduler"])
    manifests.install(layout)
    with (manifests.ROOT / "extender" / "rbac.yaml").open() as file:
        client(layout).apply(*yaml.safe_load_all(file))
    fleet = layout.config / "fleet.yaml"
    card = {"count": CARDS, "memoryMiB": CARD_MIB, "slots": 10, "model": "NVIDIA A100-SXM4-40GB"}
    write_private(fleet, yaml.safe_dump(dict.fromkeys(nodes, card), default_flow_style=False))
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
            "election": {"lease_seconds": 5.0, "renew_deadline_seconds": 4.0, "retry_seconds": 0.5},
            "request_timeout_seconds": 3.0,
        },
        "agent": {
            "fleet_file": str(fleet),
            "metrics_address": "127.0.0.1",
            "metrics_port": layout.port(Port.AGENT_METRICS),
        },
    }
    write_private(layout.config / "tranche.yaml", yaml.safe_dump(configuration))
    simulated = components.Component("simulated-nodes", (LAB_NAMESPACE, "simulated-nodes"), ("lab.simulated", *nodes))
    started = [simulated, *(components.component(layout, name) for name in ("agent", "webhook"))]
    for component in started:
        components.start(layout, component)
    for component in started:
        wait.until(
            lambda component=component: components.is_ready(component),
            what=f"{component.name} ready",
            timeout_s=PATIENCE_S,
            daemons=[Daemon(layout, component.name)],
        )

    def reported(statuses: Mapping[str, Any]) -> bool:
        return sum(each.get("status", {}).get("total") == CARDS for each in statuses.values()) == len(nodes)

    client(layout).until(reported, "gpunodestatuses", what="cards of every node", timeout_s=2 * PATIENCE_S)
