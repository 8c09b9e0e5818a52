"""The schedulers to compare: the scheduling loop, a stock kube-scheduler, and a kube-scheduler with the extender."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import yaml

from allocation import names
from benchmarks import cluster
from lab import control_plane, kubeconfig, manifests
from lab.layout import Layout, Port
from lab.processes import Daemon

_UNLIMITED = {"qps": 5000, "burst": 5000}


def identity(layout: Layout) -> Path:
    """Return the kubeconfig of this project's scheduler account."""
    return kubeconfig.service_account_kubeconfig(layout, namespace=names.SYSTEM_NAMESPACE, name="tranche-scheduler")


def loop(layout: Layout, account: Path, *arguments: str) -> AbstractContextManager[int]:
    """Run the scheduling loop as `account`, with more `arguments`; yield its process ID. It need not be ready yet."""
    port = str(layout.port(Port.SCHEDULER))
    return cluster.process(layout, "scheduler", "--kubeconfig", str(account), "--port", port, *arguments)


@contextmanager
def stock(layout: Layout, **configuration: Any) -> Iterator[int]:
    """Run a stock kube-scheduler without a client-side rate limit, with further fields of its `configuration`.

    Yield its process ID. It need not be ready yet.
    """
    connection = {"kubeconfig": str(layout.component_kubeconfig("kube-scheduler")), **_UNLIMITED}
    control_plane.start_kube_scheduler(layout, configuration={"clientConnection": connection, **configuration})
    daemon = Daemon(layout, "kube-scheduler")
    try:
        yield daemon.pid or 0
    finally:
        daemon.stop()


@contextmanager
def extended(layout: Layout, account: Path) -> Iterator[None]:
    """Run a stock kube-scheduler with the configuration of manifests/extender, and the extender that it calls."""
    with (
        loop(layout, account, "--extender", "--kube-scheduler-lease-name="),
        stock(layout, **_shipped(layout, "extender")),
    ):
        yield


@contextmanager
def handing_over(layout: Layout, account: Path) -> Iterator[int]:
    """Run the loop with the component for claims of other drivers: a kube-scheduler next to it, which has no pods.

    Yield the process ID of the loop.
    """
    with (
        loop(layout, account, "--allocation-resource-claims=hand-over", "--kube-scheduler-lease-name=") as process,
        stock(layout, **_shipped(layout, "resource-claims")),
    ):
        yield process


def _shipped(layout: Layout, component: str) -> dict[str, Any]:
    """Return what the configuration of a component says other than the election of a leader."""
    shipped = yaml.safe_load((manifests.ROOT / component / "kube-scheduler.yaml").read_text())
    extender = shipped["extenders"][0] | {"urlPrefix": f"http://127.0.0.1:{layout.port(Port.SCHEDULER)}"}
    return {key: shipped[key] for key in ("percentageOfNodesToScore", "profiles")} | {"extenders": [extender]}
