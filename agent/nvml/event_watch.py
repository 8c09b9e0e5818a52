"""Waits for critical events that the driver reports: XIDs and double-bit ECC errors."""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Event, Thread
from typing import Any, Final

import pynvml

from agent.health import CriticalEvent
from agent.nvml.nvml import NoEventError, NvmlError, call

log = logging.getLogger(__name__)

_WAIT_MS: Final = 250  # the longest time that `stop` waits for NVML
_PAUSE_SECONDS: Final = 1.0
_EVENTS: Final = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError


class EventWatch:
    """A thread that waits for the events of some cards until it is stopped.

    Attributes:
        indexes: the indexes of these cards.
        ready: set once the thread receives every further event.
    """

    def __init__(
        self,
        indexes: Iterable[int],
        *,
        on_event: Callable[[CriticalEvent], None],
        on_unknown: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """Start at once.

        The thread calls `on_event` with each event, and `on_unknown` when NVML reports that something is wrong without
        saying what.
        """
        self.indexes = frozenset(indexes)
        self._on_event = on_event
        self._on_unknown = on_unknown
        self._clock = clock
        self._stop = Event()
        self.ready = Event()
        self._thread = Thread(target=self._run, name="NVML events", daemon=True)
        self._thread.start()

    def stop(self, *, seconds: float) -> bool:
        """End the thread; return whether it ended within `seconds`."""
        self._stop.set()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            events = call("nvmlEventSetCreate")
        except NvmlError as error:
            log.warning("critical events are not available: %s; cards are only probed", error)
            self.ready.set()
            return
        for index in sorted(self.indexes):
            self._register(index, events)
        self.ready.set()
        failure = ""
        while not self._stop.is_set():
            try:
                self._take(call("nvmlEventSetWait_v2", events, _WAIT_MS))
                failure = ""
            except NoEventError:
                failure = ""
            except NvmlError as error:
                if str(error) != failure:
                    failure = str(error)
                    log.warning("waiting for critical events failed: %s; trying again", failure)
                    self._on_unknown()
                self._stop.wait(_PAUSE_SECONDS)
        with suppress(NvmlError):
            call("nvmlEventSetFree", events)

    def _register(self, index: int, events: Any) -> None:
        try:
            handle = call("nvmlDeviceGetHandleByIndex", index)
            kinds = call("nvmlDeviceGetSupportedEventTypes", handle) & _EVENTS
            call("nvmlDeviceRegisterEvents", handle, kinds, events)
        except NvmlError as error:
            log.warning("critical events of card %d are not available: %s; it is only probed", index, error)

    def _take(self, data: Any) -> None:
        try:
            uuid = call("nvmlDeviceGetUUID", data.device)
        except NvmlError as error:
            # The card no longer responds; the next probe reports it.
            log.warning("critical event of a card that does not respond: %s", error)
            self._on_unknown()
            return
        if data.eventType == pynvml.nvmlEventTypeXidCriticalError:
            self._on_event(CriticalEvent(uuid, "xid", at=self._clock(), xid=data.eventData))
        else:
            self._on_event(CriticalEvent(uuid, "double-bit-ecc", at=self._clock()))
