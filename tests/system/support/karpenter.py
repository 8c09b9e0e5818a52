"""Karpenter itself beside Tranche: its controllers decide which machines are bought, and its pretend cloud sells them.

A machine that it bought gets a simulated kubelet, and its cards an agent. The machine type promises `nvidia.com/gpu`;
a node advertises it only if the test plays a device plugin.
"""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import yaml

from lab import components, karpenter_binary, wait
from lab.client import client
from lab.files import write_private
from lab.processes import Daemon
from tests.support.patience import PATIENCE_S
from tests.system.support import expanding
from tests.system.support.hami_nodes import delete
from tests.system.support.restarts import restart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lab.layout import Layout

POOL: Final = "gpu"
LABELS: Final = {"karpenter.sh/nodepool": POOL}
CARDS: Final = 4
CARD_MIB: Final = 40_960
_SELECTOR: Final = f"karpenter.sh/nodepool={POOL}"
_TYPE: Final = "gpu-4"
CAPACITY: Final = {"cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti", "pods": "250"}
IDLE_SECONDS: Final = 2


class Cloud:
    """The machines that Karpenter brings, each with a kubelet and an agent."""

    def __init__(self, layout: Layout, advertised: int | None) -> None:
        self._layout = layout
        self._advertised = advertised
        self._served: set[str] = set()
        self._kubelets: list[Daemon] = []

    @property
    def brought(self) -> int:
        """How many machines there have been."""
        return len(self._served)

    def nodes(self) -> list[str]:
        """Return the nodes that exist, after those that are new have got a kubelet and an agent."""
        names = {each["metadata"]["name"] for each in client(self._layout).list("nodes", labels=_SELECTOR)}
        new = sorted(names - self._served)
        if new:
            self._serve(new)
        return sorted(names)

    def until(self, condition: Callable[[], bool], *, what: str, seconds: float = PATIENCE_S) -> None:
        """Wait for a condition while new machines are served."""

        def is_met() -> bool:
            self.nodes()
            return condition()

        wait.until(is_met, what=what, timeout_s=seconds, daemons=[Daemon(self._layout, "karpenter")])

    def keep_idle_nodes(self) -> None:
        """Let Karpenter take away no node that waits for its first pod."""
        self._take_away_after("Never")

    def begin_without_nodes(self) -> None:
        """End the machines that another test left, all of them idle, and let Karpenter take idle ones away again."""
        self._take_away_after(f"{IDLE_SECONDS}s")
        client(self._layout).delete_all("nodeclaims", wait=False)
        self.until(lambda: not self.nodes(), what="the end of the machines of another test")

    def _take_away_after(self, idle: str) -> None:
        client(self._layout).patch("nodepool", POOL, {"spec": {"disruption": {"consolidateAfter": idle}}})

    def end(self) -> None:
        """End all machines: the NodePool goes, and Karpenter with its claims on machines."""
        api = client(self._layout)
        api.delete("nodepool", POOL)
        self.until(lambda: not api.list("nodeclaims"), what="the end of Karpenter's machines")
        for kubelet in self._kubelets:
            kubelet.stop()
        for node in self._served:
            api.delete("gpunodestatus", node, missing_ok=True)

    def _serve(self, nodes: list[str]) -> None:
        account = (components.LAB_NAMESPACE, "simulated-nodes")
        kubelet = components.Component(f"kubelets-{len(self._kubelets)}", account, ("lab.simulated", *nodes))
        self._kubelets.append(Daemon(self._layout, kubelet.name))
        components.start(self._layout, kubelet)
        self._served.update(nodes)
        cards = {"nvidia.com/gpu": None if self._advertised is None else str(self._advertised)}
        for node in nodes:
            patch = {"status": {"capacity": cards, "allocatable": cards}}
            client(self._layout).patch("nodes", node, patch, subresource="status")
        file = self._layout.config / "fleet.yaml"
        fleet = yaml.safe_load(file.read_text(encoding="utf-8"))
        reported = [{"index": index, "memoryMiB": CARD_MIB} for index in range(CARDS)]
        write_private(file, yaml.safe_dump({**fleet, **dict.fromkeys(nodes, reported)}))


@contextmanager
def running(layout: Layout, *, resource: str = "", advertised: int | None = None) -> Iterator[Cloud]:
    """Run Karpenter with a NodePool of one machine type and no machine, and the scheduler with the expander.

    Args:
        layout: the lab.
        resource: by which the expander requests cards.
        advertised: how many cards, or slots of cards, the device plugin of each node advertises; None without one.
    """
    api, fleet = client(layout), layout.config / "fleet.yaml"
    before = fleet.read_text(encoding="utf-8")
    definitions = [yaml.safe_load(each) for each in karpenter_binary.definitions()]
    with ExitStack() as stack:
        stack.callback(write_private, fleet, before)
        stack.callback(delete, layout, *definitions, *expanding.component())
        api.apply(*definitions, *expanding.component())
        api.until_established(*(each["metadata"]["name"] for each in definitions))
        daemon = Daemon(layout, "karpenter")
        stack.callback(daemon.stop)
        daemon.start([karpenter_binary.provide()], env=_environment(layout))
        api.apply(*_objects())
        cloud = Cloud(layout, advertised)
        stack.callback(cloud.end)
        stack.callback(restart, layout, "scheduler")
        restart(layout, "scheduler", "--config", str(_configuration(layout, resource)))
        yield cloud


def _environment(layout: Layout) -> dict[str, str]:
    types = layout.config / "machine-types.json"
    place = {"karpenter.sh/capacity-type": "on-demand", "topology.kubernetes.io/zone": "zone-a"}
    offering = {
        "Price": 1.0,
        "Available": True,
        "Requirements": [{"key": key, "operator": "In", "values": [value]} for key, value in place.items()],
    }
    machine = {
        "name": _TYPE,
        "offerings": [offering],
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {**CAPACITY, "nvidia.com/gpu": str(CARDS)},
    }
    write_private(types, json.dumps([machine]))
    return {
        "KUBECONFIG": str(layout.kubeconfig),
        "SYSTEM_NAMESPACE": "kube-system",
        "DISABLE_LEADER_ELECTION": "true",
        "METRICS_PORT": "0",
        "HEALTH_PROBE_PORT": "0",
        "INSTANCE_TYPES_FILE_PATH": str(types),
    }


def _objects() -> list[dict[str, Any]]:
    """Return the NodePool, as docs/autoscaling.md has it, and the class of its machines."""
    kind = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    machine = {
        "metadata": {"labels": {"gpu": "on"}},
        "spec": {
            "requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [_TYPE]}],
            "nodeClassRef": kind,
            "expireAfter": "Never",
        },
    }
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": f"{IDLE_SECONDS}s"}
    return [
        {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}},
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": POOL},
            "spec": {"template": machine, "disruption": disruption},
        },
    ]


def _configuration(layout: Layout, resource: str) -> Path:
    """Write the lab's configuration with the expander and a group without nodes; return the file."""
    configuration = yaml.safe_load((layout.config / "tranche.yaml").read_text(encoding="utf-8"))
    group = {"name": POOL, "labels": LABELS, "cards": CARDS, "memory_mib": CARD_MIB, "allocatable": CAPACITY}
    configuration["scheduler"]["expander"] = {
        "enabled": True,
        "collect_seconds": 0.5,
        "resource": resource,
        "templates": [group],
    }
    file = layout.config / "expanding.yaml"
    write_private(file, yaml.safe_dump(configuration, sort_keys=False))
    return file
