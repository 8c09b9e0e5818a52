"""Probes all cards concurrently, so that none waits for another."""

from concurrent.futures import Future, wait
from pathlib import Path

from agent import daemon_call
from agent.nvml.card_reading import CardReading, UnreadableCardError, read_card

Readings = dict[str, CardReading]
Unreadable = dict[int, UnreadableCardError]


class CardProbes:
    """The probes in progress; a card is not probed again before its last probe has ended."""

    def __init__(self, *, sysfs: Path, seconds: float) -> None:
        """Wait at most `seconds` for the cards."""
        self._sysfs = sysfs
        self._seconds = seconds
        self._probes: dict[int, Future[CardReading]] = {}

    @property
    def is_busy(self) -> bool:
        """Whether a probe is in progress."""
        return bool(self._probes)

    def read(self, count: int) -> tuple[Readings, Unreadable]:
        """Probe the cards 0 to `count` - 1; return the readings by UUID, and the errors of the other cards by index."""
        for index in range(count):
            if index not in self._probes:
                self._probes[index] = self._start(index)
        wait(self._probes.values(), timeout=self._seconds)
        read: Readings = {}
        unread: Unreadable = {}
        for index, probe in sorted(self._probes.items()):
            if not probe.done():
                unread[index] = UnreadableCardError(f"NVML has not responded within {self._seconds:g} s")
                continue
            del self._probes[index]
            try:
                reading = probe.result()
            except UnreadableCardError as error:
                unread[index] = error
                continue
            if reading.uuid in read:
                unread[index] = UnreadableCardError(f"card {read[reading.uuid].index} has UUID {reading.uuid} too")
            else:
                read[reading.uuid] = reading
        return read, unread

    def _start(self, index: int) -> Future[CardReading]:
        return daemon_call.start(lambda: read_card(index, sysfs=self._sysfs), name=f"NVML card {index}")
