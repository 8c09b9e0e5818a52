"""Pairs of a stock kube-scheduler and the extender, each with its own host name.

In extender mode kube-scheduler has all pods; a pair that hands over has a loop as well.
"""

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
from tests.support.patience import PATIENCE_S

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
_BACKOFF = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}
"""Of kube-scheduler where it has only the pods with claims; by default 10 s, for which a test would have to wait."""
_SILENT_S = 10.0
"""Longer than such a Lease lasts; by default 30 s."""
_PORT_OFFSET = 40  # between the ports of two pairs
EXTENDER, HAND_OVER = "extender", "resource-claims"
"""The components of manifests/ that pairs differ by."""


@dataclass(frozen=True)
class Pair:
    """One pair. It differs from its component in ports, in the kubeconfig, and in how long a Lease and a pause last."""

    layout: Layout
    number: int
    tls: bool = False
    """Whether the two processes use mutual TLS, as they would across hosts."""
    component: str = EXTENDER
    """The component of manifests/ that it is installed by."""

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
        self.start_extender()
        write_private(self._file, yaml.safe_dump(self._configuration()))
        self.start_kube_scheduler()

    @property
    def _identity(self) -> str:
        namespace, name = ACCOUNT
        return str(kubeconfig.service_account_kubeconfig(self.layout, namespace=namespace, name=name))

    def start_extender(self) -> None:
        """Start Tranche's process."""
        lease = self._configuration()["leaderElection"]
        self._start(
            self.extender,
            *(sys.executable, "-m", "scheduler", "--config", str(self.layout.config / "tranche.yaml")),
            f"--extender={'true' if self.component == EXTENDER else 'false'}",
            *("--port", str(self._port(Port.SCHEDULER)), "--kubeconfig", self._identity),
            *("--namespace-api-port", str(self._port(Port.SCHEDULER_API))),
            "--ui-enabled=false",
            "--ui-exposed=false",
            *("--kube-scheduler-lease-namespace", lease["resourceNamespace"]),
            *("--kube-scheduler-lease-name", lease["resourceName"]),
            *(self._guard() if self.tls else ()),
        )

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

    def _configuration(self) -> dict[str, Any]:
        content: dict[str, Any] = yaml.safe_load((manifests.ROOT / self.component / "kube-scheduler.yaml").read_text())
        (extender,) = content["extenders"]
        extender["urlPrefix"] = self.url
        content["clientConnection"] = {"kubeconfig": self._identity}
        content["leaderElection"] |= _LEASE
        content |= _BACKOFF if self.component == HAND_OVER else {}
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


def up(
    layout: Layout,
    nodes: list[str],
    *,
    component: str = EXTENDER,
    provide: Callable[..., None] = binaries.provide,
) -> None:
    """Start Tranche on a cluster without a scheduler, with these simulated GPU nodes, for pairs of a component.

    `provide` links kube-scheduler into the folder of the lab.
    """
    provide(layout.bin, ["kube-scheduler"])
    manifests.install(layout)
    with (manifests.ROOT / component / "rbac.yaml").open() as file:
        client(layout).apply(*yaml.safe_load_all(file))
    fleet = layout.config / "fleet.yaml"
    card = {"count": CARDS, "memoryMiB": CARD_MIB, "slots": 10, "model": "NVIDIA A100-SXM4-40GB"}
    write_private(fleet, yaml.safe_dump(dict.fromkeys(nodes, card), default_flow_style=False))
    configuration = {
        "allocation": {"resource_claims": "hand-over" if component == HAND_OVER else "hold"},
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
            "kube_scheduler": {"silent_seconds": _SILENT_S},
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
    for each in started:
        components.start(layout, each)
    for each in started:
        wait.until(
            lambda each=each: components.is_ready(each),
            what=f"{each.name} ready",
            timeout_s=PATIENCE_S,
            daemons=[Daemon(layout, each.name)],
        )

    def reported(statuses: Mapping[str, Any]) -> bool:
        return sum(each.get("status", {}).get("total") == CARDS for each in statuses.values()) == len(nodes)

    client(layout).until(reported, "gpunodestatuses", what="cards of every node", timeout_s=2 * PATIENCE_S)
