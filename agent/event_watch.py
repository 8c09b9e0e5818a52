"""Waits for what the driver reports of its cards: critical XIDs and double-bit ECC errors."""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Event, Thread
from typing import Any, Final

import pynvml

from agent.health import CriticalEvent
from agent.nvml import NoEventError, NvmlError, call

log = logging.getLogger(__name__)

_WAIT_MS: Final = 250  # how long the end of the process may have to wait for NVML
_PAUSE_SECONDS: Final = 1.0
_WANTED: Final = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError


class EventWatch:
    """A thread that waits for events of some cards until it is stopped.

    Attributes:
        indexes: whose events are waited for.
        ready: set once every event from now on is seen.
    """

    def __init__(
        self,
        indexes: Iterable[int],
        *,
        on_event: Callable[[CriticalEvent], None],
        on_doubt: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """Start at once.

        `on_event` takes an event, `on_doubt` is called when NVML says that something is wrong but not what; both from
        the thread.
        """
        self.indexes = frozenset(indexes)
        self._on_event = on_event
        self._on_doubt = on_doubt
        self._clock = clock
        self._stop = Event()
        self.ready = Event()
        self._thread = Thread(target=self._run, name="NVML events", daemon=True)
        self._thread.start()

    def stop(self, *, seconds: float) -> bool:
        """End the thread; answer whether it ended within `seconds`."""
        self._stop.set()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            events = call("nvmlEventSetCreate")
        except NvmlError as error:
            log.warning("no critical events are seen error=%r; cards are only probed", str(error))
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
                    log.warning("waiting for critical events failed error=%r; trying again", failure)
                    self._on_doubt()
                self._stop.wait(_PAUSE_SECONDS)
        with suppress(NvmlError):
            call("nvmlEventSetFree", events)

    def _register(self, index: int, events: Any) -> None:
        try:
            handle = call("nvmlDeviceGetHandleByIndex", index)
            kinds = call("nvmlDeviceGetSupportedEventTypes", handle) & _WANTED
            call("nvmlDeviceRegisterEvents", handle, kinds, events)
        except NvmlError as error:
            log.warning("no critical events are seen of card index=%d error=%r; it is only probed", index, str(error))

    def _take(self, data: Any) -> None:
        try:
            uuid = call("nvmlDeviceGetUUID", data.device)
        except NvmlError as error:
            # The card does not answer any more: the next probe will say so.
            log.warning("critical event of a card that does not answer error=%r", str(error))
            self._on_doubt()
            return
        if data.eventType == pynvml.nvmlEventTypeXidCriticalError:
            self._on_event(CriticalEvent(uuid, "xid", at=self._clock(), xid=data.eventData))
        else:
            self._on_event(CriticalEvent(uuid, "double-bit-ecc", at=self._clock()))
