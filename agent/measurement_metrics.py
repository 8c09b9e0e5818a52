"""The last measurement as metrics: a series disappears with its container, and what is unknown has no series."""

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cluster.measurement import NodeMeasurement


class MeasurementCollector(Collector):
    """Reads the last measurement at each scrape.

    The labels of containers are UIDs and IDs, not names: the agent has no right to read pods. At most
    `cluster.measurement.MOST_CONTAINERS` containers have series.
    """

    def __init__(self, measured: Callable[[], NodeMeasurement]) -> None:
        """Show what `measured` returns."""
        self._measured = measured

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        measured = self._measured()
        node = measured.node
        age = GaugeMetricFamily(
            "tranche_agent_measurement_age_seconds",
            "Age of the last measurement of what containers use.",
            labels=("node",),
        )
        age.add_metric((node,), measured.age_seconds)
        unknown = GaugeMetricFamily(
            "tranche_agent_unmeasured_devices",
            "Cards and MIG instances of which it is unknown what containers use of them.",
            labels=("node",),
        )
        unknown.add_metric((node,), sum(bool(measured.problem or each.problem) for each in measured.devices))
        yield from (age, unknown, *_devices(measured), *_containers(measured))


def _devices(measured: NodeMeasurement) -> Iterator[Metric]:
    labels = ("node", "device_uuid")
    memory = GaugeMetricFamily(
        "tranche_agent_device_memory_used_bytes", "Used memory of a card or MIG instance.", labels=labels
    )
    busy = GaugeMetricFamily(
        "tranche_agent_device_utilization_ratio",
        "Part of the time in which a kernel ran on the card: 0 to 1.",
        labels=labels,
    )
    for device in measured.devices:
        if device.memory_used_bytes is not None:
            memory.add_metric((measured.node, device.uuid), device.memory_used_bytes)
        if device.utilization_percent is not None:
            busy.add_metric((measured.node, device.uuid), device.utilization_percent / 100)
    yield from (memory, busy)


def _containers(measured: NodeMeasurement) -> Iterator[Metric]:
    labels = ("node", "device_uuid", "uid", "container_id")
    memory = GaugeMetricFamily(
        "tranche_agent_container_memory_used_bytes",
        "Device memory that the processes of a container use; labels as in kube-state-metrics.",
        labels=labels,
    )
    busy = GaugeMetricFamily(
        "tranche_agent_container_utilization_ratio",
        "Part of the card's time in which the kernels of a container ran: 0 to 1.",
        labels=labels,
    )
    for container in measured.containers:
        values = (measured.node, container.device, container.uid, container.container_id)
        if container.memory_bytes is not None:
            memory.add_metric(values, container.memory_bytes)
        if container.utilization_percent is not None:
            busy.add_metric(values, container.utilization_percent / 100)
    yield from (memory, busy)
