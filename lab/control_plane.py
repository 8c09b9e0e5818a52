"""The control plane: etcd, kube-apiserver, kube-controller-manager and the stock kube-scheduler, all on 127.0.0.1.

Starting it is idempotent. Each process has its own identity, as in any cluster. Only two things differ: etcd has one
member that does not wait for the disk, and leader election is off.
"""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lab import binaries, health, kubeconfig, pki, ports, wait
from lab.client import client
from lab.errors import LabError
from lab.files import write_private
from lab.layout import Port
from lab.processes import Daemon

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lab.layout import Layout

SERVER = ("etcd", "kube-apiserver", "kubectl")
# Every request, once, after its response. Bodies are left out: tests check who did what, not the content.
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


def up(
    layout: Layout,
    *,
    controller_manager: bool = True,
    kube_scheduler: bool = True,
    audit: bool = True,
    node_startup_grace_period: str = "1m",
    provide: Callable[..., None] = binaries.provide,
    report: Callable[[str], None] = print,
) -> None:
    """Start the control plane and return when it is ready and pods can be created in namespace `default`.

    Without the controller manager nothing creates the ServiceAccount that pods need, so it is created here. With it,
    nodes whose kubelet never reports get a taint after `node_startup_grace_period`. `provide` links the programs into
    the lab's folder.

    Raises:
        LabError: a port is taken, or a component did not become ready.
    """
    names = {"kube-controller-manager": controller_manager, "kube-scheduler": kube_scheduler}
    wanted = [name for name, is_wanted in names.items() if is_wanted]
    provide(layout.bin, (*SERVER, *wanted), report=report)
    prepare(layout)
    start_etcd(layout)
    start_apiserver(layout, audit=audit)
    if controller_manager:
        start_controller_manager(layout, node_startup_grace_period)
    if kube_scheduler:
        start_kube_scheduler(layout)
    if not controller_manager:
        client(layout).apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
    for name in wanted:
        _until_ready(layout, name)
    wait.until(
        lambda: client(layout).find("serviceaccount", "default", namespace="default"),
        what="ServiceAccount default in namespace default",
        daemons=[Daemon(layout, name) for name in ("kube-apiserver", *wanted)],
    )


def prepare(layout: Layout) -> None:
    """Write certificates, kubeconfigs and configuration files; a new cluster begins with empty logs."""
    if not layout.pki.exists():
        shutil.rmtree(layout.logs, ignore_errors=True)
    layout.logs.mkdir(parents=True, exist_ok=True)
    pki.ensure(layout, now=datetime.now(tz=UTC))
    kubeconfig.with_certificate(layout, layout.kubeconfig, leaf="admin")
    for name in ("kube-controller-manager", "kube-scheduler"):
        kubeconfig.with_certificate(layout, layout.component_kubeconfig(name), leaf=name)
    write_private(layout.config / "audit-policy.json", json.dumps(AUDIT_POLICY, indent=2))


def start_etcd(layout: Layout) -> None:
    """Start etcd and wait until it is ready."""
    client = f"https://127.0.0.1:{layout.port(Port.ETCD)}"
    peer = f"https://127.0.0.1:{layout.port(Port.ETCD_PEER)}"
    authority = pki.certificate(layout, pki.ETCD_CA)
    certificate, key = pki.certificate(layout, "etcd"), pki.key(layout, "etcd")
    _start(
        layout,
        "etcd",
        {
            "--name": "lab",
            "--data-dir": layout.etcd_data,
            "--listen-client-urls": client,
            "--advertise-client-urls": client,
            "--cert-file": certificate,
            "--key-file": key,
            "--trusted-ca-file": authority,
            "--client-cert-auth": "true",
            "--listen-peer-urls": peer,
            "--initial-advertise-peer-urls": peer,
            "--initial-cluster": f"lab={peer}",
            "--peer-cert-file": certificate,
            "--peer-key-file": key,
            "--peer-trusted-ca-file": authority,
            "--peer-client-cert-auth": "true",
            "--log-level": "warn",
            # The cluster of a lab need not survive a power cut, and tests should not wait for the disk.
            "--unsafe-no-fsync": "true",
        },
        listens=(Port.ETCD, Port.ETCD_PEER),
    )
    wait.until(
        lambda: health.is_ready(
            layout, Port.ETCD, "/readyz", authority=pki.ETCD_CA, client="kube-apiserver-etcd-client"
        ),
        what="etcd ready",
        daemons=[Daemon(layout, "etcd")],
    )


def start_apiserver(layout: Layout, *, audit: bool = True, flags: Mapping[str, str] | None = None) -> None:
    """Start kube-apiserver and wait until it is ready.

    Args:
        layout: the lab.
        audit: whether every request is logged, at about a sixth of the cost of a Binding.
        flags: added to the lab's flags, or replacing them.
    """
    _start(
        layout,
        "kube-apiserver",
        {
            "--etcd-servers": f"https://127.0.0.1:{layout.port(Port.ETCD)}",
            "--etcd-cafile": pki.certificate(layout, pki.ETCD_CA),
            "--etcd-certfile": pki.certificate(layout, "kube-apiserver-etcd-client"),
            "--etcd-keyfile": pki.key(layout, "kube-apiserver-etcd-client"),
            "--bind-address": "127.0.0.1",
            "--advertise-address": "127.0.0.1",
            "--secure-port": str(layout.port(Port.KUBE_APISERVER)),
            # A service cannot have a loopback address as its endpoint.
            "--endpoint-reconciler-type": "none",
            "--service-cluster-ip-range": layout.service_subnet,
            "--tls-cert-file": pki.certificate(layout, "kube-apiserver"),
            "--tls-private-key-file": pki.key(layout, "kube-apiserver"),
            "--client-ca-file": pki.certificate(layout, pki.CLUSTER_CA),
            "--authorization-mode": "Node,RBAC",
            "--enable-admission-plugins": "NodeRestriction",
            "--service-account-issuer": "https://kubernetes.default.svc",
            "--service-account-key-file": pki.public_key(layout, pki.SERVICE_ACCOUNT),
            "--service-account-signing-key-file": pki.key(layout, pki.SERVICE_ACCOUNT),
            "--kubelet-certificate-authority": pki.certificate(layout, pki.CLUSTER_CA),
            "--kubelet-client-certificate": pki.certificate(layout, "kube-apiserver-kubelet-client"),
            "--kubelet-client-key": pki.key(layout, "kube-apiserver-kubelet-client"),
            "--kubelet-preferred-address-types": "InternalIP,Hostname",
            # As in most clusters: storage and network agents need it, and admission decides about other pods.
            "--allow-privileged": "true",
            "--profiling": "false",
            **(_audit(layout) if audit else {}),
            **(flags or {}),
        },
        listens=(Port.KUBE_APISERVER,),
    )
    wait.until(
        lambda: health.is_ready(layout, Port.KUBE_APISERVER, "/readyz"),
        what="kube-apiserver ready",
        daemons=[Daemon(layout, "kube-apiserver"), Daemon(layout, "etcd")],
    )


def _audit(layout: Layout) -> dict[str, object]:
    return {
        "--audit-policy-file": layout.config / "audit-policy.json",
        "--audit-log-path": layout.audit_log,
        "--audit-log-maxsize": "1024",
    }


def restart_apiserver(layout: Layout, *, flags: Mapping[str, str] | None = None) -> None:
    """Stop kube-apiserver, wait until its port is free, and start it again."""
    Daemon(layout, "kube-apiserver").stop()
    start_apiserver(layout, flags=flags)


def start_controller_manager(layout: Layout, node_startup_grace_period: str) -> None:
    """Start kube-controller-manager. `up` waits for its readiness."""
    _start(
        layout,
        "kube-controller-manager",
        {
            **_component_flags(layout, "kube-controller-manager", Port.KUBE_CONTROLLER_MANAGER),
            "--kubeconfig": layout.component_kubeconfig("kube-controller-manager"),
            "--leader-elect": "false",
            "--node-startup-grace-period": node_startup_grace_period,
            # At start it creates an account for each controller; the default of 20 a second would delay `up` by 4 s.
            "--kube-api-qps": "500",
            "--kube-api-burst": "1000",
            "--use-service-account-credentials": "true",
            "--service-account-private-key-file": pki.key(layout, pki.SERVICE_ACCOUNT),
            "--root-ca-file": pki.certificate(layout, pki.CLUSTER_CA),
            # It creates this folder, by default outside the lab's folder.
            "--flex-volume-plugin-dir": layout.config / "flex-volume-plugins",
        },
        listens=(Port.KUBE_CONTROLLER_MANAGER,),
    )


def start_kube_scheduler(layout: Layout, *, configuration: Mapping[str, Any] | None = None) -> None:
    """Start the stock kube-scheduler. `up` waits for its readiness.

    Args:
        layout: the lab.
        configuration: further fields of KubeSchedulerConfiguration, such as profiles and extenders.
    """
    name = "kube-scheduler"
    file = write_private(
        layout.config / f"{name}.json",
        json.dumps(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "clientConnection": {"kubeconfig": str(layout.component_kubeconfig(name))},
                "leaderElection": {"leaderElect": False},
                **(configuration or {}),
            },
            indent=2,
        ),
    )
    flags = {**_component_flags(layout, name, Port.KUBE_SCHEDULER), "--config": file}
    _start(layout, name, flags, listens=(Port.KUBE_SCHEDULER,))


def _component_flags(layout: Layout, name: str, port: Port) -> dict[str, object]:
    """Return the flags with which a component serves health and metrics, and authorizes their readers."""
    own = layout.component_kubeconfig(name)
    return {
        "--bind-address": "127.0.0.1",
        "--secure-port": str(layout.port(port)),
        "--tls-cert-file": pki.certificate(layout, name),
        "--tls-private-key-file": pki.key(layout, name),
        "--client-ca-file": pki.certificate(layout, pki.CLUSTER_CA),
        "--authentication-kubeconfig": own,
        "--authorization-kubeconfig": own,
        # Without an aggregated API server, the request header CA does not exist.
        "--authentication-skip-lookup": "true",
    }


def _until_ready(layout: Layout, name: str) -> None:
    port = Port[name.upper().replace("-", "_")]
    wait.until(
        lambda: health.is_ready(layout, port, "/healthz"),
        what=f"{name} ready",
        daemons=[Daemon(layout, name), Daemon(layout, "kube-apiserver")],
    )


def _start(layout: Layout, name: str, flags: Mapping[str, object], *, listens: tuple[Port, ...]) -> None:
    daemon = Daemon(layout, name)
    if daemon.is_running:
        return
    ports.require_free(layout, listens)
    binary = layout.bin / name
    if not binary.exists():
        raise LabError(name, why=f"{binary} does not exist", remedy="run `make up`")
    daemon.start([binary, *(f"{flag}={value}" for flag, value in flags.items())])
