"""The agent's metrics for Prometheus."""

from typing import Final, get_args

from prometheus_client import Counter, Gauge, Histogram

from agent.report import NodeReport
from cluster.gpu_node_status import NodeState
from cluster.http.exposition import Registry

UNREACHABLE: Final = "Unreachable"
"""The reason of a write that got no response."""
_READ_BUCKETS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0)


class Metrics:
    """The agent's metrics in their own registry, so that a process can run several agents."""

    def __init__(self) -> None:
        self.registry = Registry()
        self._cards = Gauge(
            "tranche_agent_cards",
            "Cards in the inventory of a node.",
            ["node", "health"],
            registry=self.registry,
        )
        self._without_cards = Gauge(
            "tranche_agent_node_without_cards",
            "1 while the cards of a node cannot be used: its driver is missing, or lists no card.",
            ["node", "state"],
            registry=self.registry,
        )
        self._last = Gauge(
            "tranche_agent_last_publish_timestamp_seconds",
            "When a node's inventory was last written to the API server.",
            ["node"],
            registry=self.registry,
        )
        self._beat = Gauge(
            "tranche_agent_last_heartbeat_timestamp_seconds",
            "When a node's heartbeat was last renewed.",
            ["node"],
            registry=self.registry,
        )
        self.inventory_seconds = Histogram(
            "tranche_agent_inventory_seconds",
            "Duration of a reading of the inventory source.",
            buckets=_READ_BUCKETS,
            registry=self.registry,
        )
        self._publish_errors = Counter(
            "tranche_agent_publish_errors_total",
            "Writes that the API server did not confirm, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self._publish_errors.labels(UNREACHABLE)
        self._inventory_errors = Counter(
            "tranche_agent_inventory_errors_total",
            "Readings of the inventory source that failed, among them those without a driver.",
            registry=self.registry,
        )
        self._undelivered = Gauge(
            "tranche_agent_undelivered_containers",
            "Containers that ran without their cards when the agent last became a plugin of the container runtime.",
            registry=self.registry,
        )
        self._refused_devices = Counter(
            "tranche_agent_refused_devices_total",
            "Calls of the kubelet to the agent as its device plugin that were refused.",
            registry=self.registry,
        )
        self._repairs = Counter(
            "tranche_agent_repairs_total",
            "Times that a published object was found changed or deleted, and was written again.",
            registry=self.registry,
        )

    def undelivered(self, containers: int) -> None:
        """Record how many containers started without their cards."""
        self._undelivered.set(containers)

    def refused_devices(self) -> None:
        """Count a call of the kubelet that was refused."""
        self._refused_devices.inc()

    def inventory(self, report: NodeReport) -> None:
        """Record the cards of a node."""
        healthy = sum(device.card.healthy for device in report.devices)
        self._cards.labels(report.node, "healthy").set(healthy)
        self._cards.labels(report.node, "unhealthy").set(len(report.devices) - healthy)
        present = report.problem.state if report.problem is not None else ""
        for state in get_args(NodeState):
            self._without_cards.labels(report.node, state).set(state == present)

    def published(self, node: str, *, unix: float) -> None:
        """Record that a node's inventory was written at Unix time `unix`."""
        self._last.labels(node).set(unix)

    def beat(self, node: str, *, unix: float) -> None:
        """Record that a node's heartbeat was renewed at Unix time `unix`."""
        self._beat.labels(node).set(unix)

    def forget(self, node: str) -> None:
        """Remove the metrics of a node that is no longer served."""
        for labels in ((node, "healthy"), (node, "unhealthy")):
            self._cards.remove(*labels)
        for state in get_args(NodeState):
            self._without_cards.remove(node, state)
        self._last.remove(node)
        self._beat.remove(node)

    def publish_error(self, reason: str) -> None:
        """Count a write that failed."""
        self._publish_errors.labels(reason).inc()

    def inventory_error(self) -> None:
        """Count a reading that failed."""
        self._inventory_errors.inc()

    def repair(self) -> None:
        """Count a published object that has to be written again."""
        self._repairs.inc()
