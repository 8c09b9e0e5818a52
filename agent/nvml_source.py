"""Inventory by NVML: every card on its own, so that one that is lost, hangs or lies leaves the others as they are.

A card that was read once is reported until the agent ends, unhealthy while it cannot be read. What was never readable
is left out, with a reason in the log.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock
from types import TracebackType
from typing import Final, Self

import msgspec

from agent.card_probes import CardProbes, Readings, Unreadable
from agent.card_reading import CardReading
from agent.event_watch import EventWatch
from agent.health import CriticalEvent, Health, Probe
from agent.notices import Notices
from agent.nvlink import Endpoint, bandwidth_gbps, islands
from agent.nvml import NvmlError
from agent.nvml_session import NvmlSession
from agent.report import DeviceReport, NodeReport
from agent.scaling import scaled
from agent.settings import AgentSettings
from allocation.inventory import Card

log = logging.getLogger(__name__)

_STOP_SECONDS: Final = 2.0
_MIG: Final = "the card is in MIG mode: it cannot be shared as a whole"


class NvmlSource:
    """The cards of this machine. Nothing is asked of NVML before the first reading, and nothing after the block."""

    def __init__(
        self,
        *,
        node: str,
        settings: AgentSettings,
        wake: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Report as `node`; `wake` is called from a thread when a new reading would tell something new."""
        self._node = node
        self._settings = settings
        self._wake = wake
        self._clock = clock
        self._health = Health(quiet_seconds=settings.quiet_seconds, ignored_xids=settings.ignored_xids)
        self._session = NvmlSession()
        self._probes = CardProbes(sysfs=Path(settings.sysfs), seconds=settings.probe_seconds)
        self._watch: EventWatch | None = None
        self._events: SimpleQueue[CriticalEvent] = SimpleQueue()
        self._known: Readings = {}
        self._notices = Notices()
        self._opened_at = 0.0
        self._complete = True
        self._reading = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reading.acquire(blocking=False):  # a call that hangs must not keep the process
            self._close()
            self._reading.release()

    @property
    def present(self) -> bool:
        """Whether NVML could be used, now or before."""
        return self._session.opened

    def read(self) -> Mapping[str, NodeReport]:
        """Answer every card that was ever read, as it is now."""
        with self._reading:
            failures = self._look()
            self._take_events()
            now = self._clock()
            messages = {
                uuid: self._health.judge(uuid, _probe(reading, failures.get(uuid, "")), now=now)
                for uuid, reading in self._known.items()
            }
            for uuid, message in messages.items():
                self._notices.tell(f"card {uuid}", message)
            return {self._node: self._report(messages, lost=failures)}

    # ---- one look --------------------------------------------------------------------------------------------------

    def _look(self) -> dict[str, str]:
        """Look at every card; answer why each known one that could not be read could not."""
        try:
            self._open()
            count = self._session.count(seconds=self._settings.probe_seconds)
        except NvmlError as error:
            self._complete = False
            self._notices.tell(f"NVML of node {self._node}", f"it cannot be used: {error}")
            return dict.fromkeys(self._known, str(error))
        self._notices.tell(f"NVML of node {self._node}", "" if count else "it lists no cards")
        read, unread = self._probes.read(count)
        for uuid, reading in read.items():
            self._known[uuid] = reading.completed(self._known.get(uuid))
            self._notices.tell(f"reading of card {uuid}", "; ".join(reading.notes))
        failures = self._attribute(read, unread)
        self._complete = bool(count) and not unread and not failures
        self._watch_cards({reading.index for reading in read.values()})
        return failures

    def _open(self) -> None:
        now = self._clock()
        if self._complete or now - self._opened_at < self._settings.quiet_seconds or self._probes.busy:
            self._session.open()
            return
        # A card is missing: what has come back since is seen only after a new nvmlInit.
        self._opened_at = now
        if self._close():
            self._session.open()

    def _close(self) -> bool:
        """Close NVML unless a call is under way; answer whether it was."""
        if self._probes.busy or (self._watch is not None and not self._watch.stop(seconds=_STOP_SECONDS)):
            return False
        self._watch = None
        self._session.close()
        return True

    def _attribute(self, read: Readings, unread: Unreadable) -> dict[str, str]:
        """Answer why the known cards that were not read were not, and log which others are left out."""
        missing = {uuid: reading.index for uuid, reading in self._known.items() if uuid not in read}
        failures = dict.fromkeys(missing, "NVML does not list the card any more")
        at = {index: uuid for uuid, index in missing.items()}
        for index, error in unread.items():
            uuid = error.uuid or at.get(index, "")
            if uuid in failures:
                failures[uuid] = str(error)
            self._notices.tell(f"card at index {index}", "" if uuid in failures else f"left out: {error}")
        return failures

    # ---- events ----------------------------------------------------------------------------------------------------

    def _watch_cards(self, indexes: set[int]) -> None:
        """Have the events of these cards watched; a card that came to answer joins by a new watch."""
        if self._watch is not None and (indexes <= self._watch.indexes or not self._watch.stop(seconds=_STOP_SECONDS)):
            return
        self._watch = EventWatch(indexes, on_event=self._on_event, on_doubt=self._wake, clock=self._clock)
        self._watch.ready.wait(self._settings.probe_seconds)

    def _on_event(self, event: CriticalEvent) -> None:
        self._events.put(event)
        self._wake()

    def _take_events(self) -> None:
        while True:
            try:
                event = self._events.get_nowait()
            except Empty:
                return
            if self._health.take(event):
                log.warning("card %s: the driver reports %s", event.uuid, event)
            else:
                log.info("card %s: the driver reports %s, which says nothing of the card", event.uuid, event)

    # ---- the report ------------------------------------------------------------------------------------------------

    def _report(self, messages: Mapping[str, str], *, lost: Collection[str]) -> NodeReport:
        cards = _in_order(self._known, lost=lost)
        found = islands(Endpoint(card.index, card.address or card.uuid, card.links or ()) for card in cards)
        return NodeReport(
            self._node,
            tuple(self._device(card, island=found[card.index], message=messages[card.uuid]) for card in cards),
            driver_version=self._session.driver,
        )

    def _device(self, reading: CardReading, *, island: str, message: str) -> DeviceReport:
        message = message or (_MIG if reading.mig else "")
        card = Card(
            uuid=reading.uuid,
            index=reading.index,
            memory_mib=reading.memory_mib,
            slots=self._settings.slots,
            model=reading.model or "",
            numa=reading.numa or 0,
            mode="mig" if reading.mig else "hami-core",
            healthy=not message,
        )
        settings = self._settings
        card = scaled(card, memory=settings.memory_scaling, cores=settings.core_scaling)
        return DeviceReport(card, bandwidth_gbps(reading.links or ()), island, message)


def _probe(reading: CardReading, failure: str) -> Probe:
    return Probe(failure) if failure else Probe(reading.recovery, reading.uncorrected)


def _in_order(known: Readings, *, lost: Collection[str]) -> list[CardReading]:
    """Answer the cards by index. A lost one whose index another card has now gets the first that is free behind all."""
    cards = {reading.index: reading for uuid, reading in known.items() if uuid not in lost}
    for uuid in sorted(lost, key=lambda uuid: known[uuid].index):
        index = known[uuid].index if known[uuid].index not in cards else max(cards) + 1
        cards[index] = msgspec.structs.replace(known[uuid], index=index)
    return [cards[index] for index in sorted(cards)]
