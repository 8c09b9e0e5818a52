"""The lab with the component expander, and an autoscaler that a test plays: it answers each request with one node."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import yaml

from allocation.names import PLACEHOLDER, SYSTEM_NAMESPACE
from lab import manifests
from lab.client import client
from lab.files import write_private
from tests.support.patience import PATIENCE_S
from tests.system.support import simulated_nodes
from tests.system.support.hami_nodes import delete
from tests.system.support.restarts import restart

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lab.layout import Layout

_FLAGS = ("--expander-enabled=true", "--expander-collect-seconds=0.5")
CARDS = 2


def component() -> list[dict[str, Any]]:
    """Return the objects that manifests/expander adds."""
    file = manifests.ROOT / "expander" / "scheduler.yaml"
    return manifests.read(file.read_text(encoding="utf-8"))


class Autoscaler:
    """Brings nodes like the first one, which all have a label.

    Attributes:
        labels: those of its nodes.
    """

    def __init__(self, layout: Layout, labels: dict[str, str], stack: ExitStack) -> None:
        self._layout, self.labels, self._stack = layout, labels, stack

    def requests(self) -> list[dict[str, Any]]:
        """Return the pending pods that an autoscaler sees as unschedulable, and that name the labels."""
        pods = client(self._layout).list("pods", namespace=SYSTEM_NAMESPACE, labels=PLACEHOLDER)
        return [each for each in pods if _is_unschedulable(each)]

    def until_requested(self) -> dict[str, Any]:
        """Wait for a request, and return it."""

        def found(pods: Mapping[str, Any]) -> dict[str, Any] | None:
            return next((each for each in pods.values() if _is_unschedulable(each)), None)

        return client(self._layout).until(
            found,
            "pods",
            namespace=SYSTEM_NAMESPACE,
            labels=PLACEHOLDER,
            what="a request for a node",
            timeout_s=PATIENCE_S,
        )

    def until_none(self) -> None:
        """Wait until all requests have ended."""
        client(self._layout).until(
            lambda pods: not pods,
            "pods",
            namespace=SYSTEM_NAMESPACE,
            labels=PLACEHOLDER,
            what="the end of the requests",
            timeout_s=PATIENCE_S,
        )

    def bring(self, node: str) -> None:
        """Add a node, whose agent reports its cards."""
        self._stack.enter_context(simulated_nodes.running(self._layout, node))
        client(self._layout).patch("nodes", node, {"metadata": {"labels": self.labels}})
        fleet_file = self._layout.config / "fleet.yaml"
        nodes = yaml.safe_load(fleet_file.read_text(encoding="utf-8"))
        write_private(
            fleet_file, yaml.safe_dump({**nodes, node: [{"index": n, "memoryMiB": 40960} for n in range(CARDS)]})
        )
        simulated_nodes.until_reported(self._layout, node, CARDS)


def _is_unschedulable(pod: Mapping[str, Any]) -> bool:
    return any(
        (each["type"], each["status"], each.get("reason")) == ("PodScheduled", "False", "Unschedulable")
        for each in pod.get("status", {}).get("conditions", ())
    )


@contextmanager
def expanding(layout: Layout, group: str) -> Iterator[Autoscaler]:
    """Run the scheduler with the component, and a node of a group; restore the lab afterwards."""
    fleet_file = layout.config / "fleet.yaml"
    before = fleet_file.read_text(encoding="utf-8")
    client(layout).apply(*component())
    with ExitStack() as stack:
        autoscaler = Autoscaler(layout, {"karpenter.sh/nodepool": group}, stack)
        try:
            autoscaler.bring(f"{group}-0")
            restart(layout, "scheduler", *_FLAGS)
            yield autoscaler
        finally:
            restart(layout, "scheduler")
            write_private(fleet_file, before)
            delete(layout, *component())
