"""Reads what the processes use of all cards concurrently, so that none waits for another."""

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait

from agent import daemon_call
from agent.device_use import DeviceUse, Measured
from agent.nvml.nvml import NvmlError
from agent.nvml.use_reading import read_use
from agent.processes import Container


class UseProbes:
    """The readings in progress; a card is not read again before its last reading has ended."""

    def __init__(self, *, container_of: Callable[[int], Container | None], seconds: float) -> None:
        """Wait at most `seconds` for the cards; `container_of` returns the container of a PID."""
        self._container_of = container_of
        self._seconds = seconds
        self._probes: dict[str, Future[tuple[DeviceUse, ...]]] = {}
        self._sampled_at: dict[str, int] = {}

    @property
    def is_busy(self) -> bool:
        """Whether a reading is in progress."""
        return not all(probe.done() for probe in self._probes.values())

    def start(self, cards: Mapping[str, Collection[str]]) -> None:
        """Begin to read the cards; each has the UUIDs of its MIG instances."""
        self._sampled_at = {card: self._sampled_at.get(card, 0) for card in cards}
        for card, instances in cards.items():
            if card not in self._probes:
                self._probes[card] = self._start(card, instances)

    def finish(self) -> Measured:
        """Wait for the readings, and return those that have ended."""
        wait(self._probes.values(), timeout=self._seconds)
        read: dict[str, tuple[DeviceUse, ...]] = {}
        unread: dict[str, str] = {}
        for card, probe in sorted(self._probes.items()):
            if not probe.done():
                unread[card] = f"NVML has not responded within {self._seconds:g} s"
                continue
            del self._probes[card]
            try:
                read[card] = probe.result()
            except NvmlError as error:
                unread[card] = str(error)
                continue
            if card in self._sampled_at:
                self._sampled_at[card] = max((device.sampled_at for device in read[card]), default=0)
        return Measured(read, unread)

    def _start(self, card: str, instances: Collection[str]) -> Future[tuple[DeviceUse, ...]]:
        since = self._sampled_at[card]
        return daemon_call.start(
            lambda: read_use(card, instances=instances, since=since, container_of=self._container_of),
            name=f"NVML use of {card}",
        )
