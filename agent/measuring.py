"""Measures regularly what containers really use of the cards, and keeps the last measurement.

What cannot be seen is unknown, never 0: without the host's PID namespace every container, after a failed reading the
containers of that card, and without a driver that measures it the utilization.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from agent import daemon_call, processes
from agent.device_use import DeviceUse, Measured, ProcessUse
from agent.inventory import InventorySource, UnmeasuredError
from agent.processes import Container
from agent.settings import AgentSettings
from cluster.log_once import LogOnce
from cluster.measurement import (
    LONGEST_TEXT,
    MOST_CONTAINERS,
    ContainerMeasurement,
    DeviceMeasurement,
    NodeMeasurement,
)

log = logging.getLogger(__name__)

_ALL: Final = 100
_PID_NAMESPACE: Final = (
    "the agent does not have the host's PID namespace, so it sees no processes of containers; manifests/usage gives it"
    " to the agent"
)
_NOT_YET: Final = "the agent has not measured yet"
_OFF: Final = "the agent does not measure (agent.measure_seconds is 0)"

_Key = tuple[str, Container]


class Measurer:
    """The last measurement of the node, and since when each container has been inactive on each device."""

    def __init__(
        self,
        source: InventorySource,
        *,
        node: str,
        settings: AgentSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Measure the cards of `source` as those of `node`."""
        self._source = source
        self._node = node
        self._seconds = settings.measure_seconds
        self._procfs = Path(settings.procfs)
        self._clock = clock
        self._active_at: dict[_Key, float] = {}
        self._log_once = LogOnce()
        self._measured_at = clock()
        self._last = NodeMeasurement(node, problem=_NOT_YET if self._seconds else _OFF)

    @property
    def last(self) -> NodeMeasurement:
        """The last measurement, with its age."""
        return msgspec.structs.replace(self._last, age_seconds=round(self._clock() - self._measured_at, 1))

    async def run(self) -> None:
        """Measure until cancelled, in a thread: a driver call that hangs keeps nothing else waiting."""
        while self._seconds:
            try:
                await asyncio.wrap_future(daemon_call.start(self.measure, name="measurement"))
            except Exception:  # a bug here must not end the agent, on whose inventory decisions depend
                log.exception("the measurement failed; the last one grows old until another succeeds")
            await asyncio.sleep(self._seconds)

    def measure(self) -> None:
        """Measure once."""
        now, containers = self._clock(), tuple[ContainerMeasurement, ...]()
        try:
            measured, problem = self._source.measure(), ""
        except UnmeasuredError as error:
            measured, problem = Measured({}, {}), str(error)[:LONGEST_TEXT]
        devices = [device for card in measured.read.values() for device in card]
        if not problem and not processes.sees_host(self._procfs):
            problem = _PID_NAMESPACE
        if not problem:
            containers = tuple(self._containers(devices, now))
        if len(containers) > MOST_CONTAINERS:
            problem, containers = f"more than {MOST_CONTAINERS} containers use cards", ()
        self._log_once.report(f"measurement of node {self._node}", problem)
        self._last = NodeMeasurement(
            node=self._node,
            devices=(*map(_device, devices), *(_unread(card, why) for card, why in sorted(measured.unread.items()))),
            containers=containers,
            problem=problem,
        )
        self._measured_at = now

    def _containers(self, devices: Iterable[DeviceUse], now: float) -> Iterator[ContainerMeasurement]:
        for device in devices:
            by_container: defaultdict[Container, list[ProcessUse]] = defaultdict(list)
            for process in device.processes:
                if process.container is not None:
                    by_container[process.container].append(process)
            for key in [key for key in self._active_at if key[0] == device.uuid and key[1] not in by_container]:
                del self._active_at[key]
            for container, own in by_container.items():
                percent = _sum(process.percent for process in own)
                key = (device.uuid, container)
                if percent or key not in self._active_at:
                    self._active_at[key] = now
                yield ContainerMeasurement(
                    uid=container.uid,
                    container_id=container.id,
                    device=device.uuid,
                    memory_bytes=device.limited.get(container, _whole(_sum(process.memory_bytes for process in own))),
                    utilization_percent=None if percent is None else min(round(percent), _ALL),
                    inactive_seconds=None if percent is None else round(now - self._active_at[key], 1),
                )


def _device(device: DeviceUse) -> DeviceMeasurement:
    outside = _sum(process.memory_bytes for process in device.processes if process.container is None)
    return DeviceMeasurement(device.uuid, device.memory_used_bytes, device.utilization_percent, _whole(outside))


def _unread(card: str, problem: str) -> DeviceMeasurement:
    return DeviceMeasurement(card, problem=problem[:LONGEST_TEXT])


def _sum(values: Iterable[float | None]) -> float | None:
    """Return the sum, which is unknown if one of the values is."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
