"""Inventory from NVML. Cards are independent: one that is lost, hangs or reports nonsense does not affect the others.

A card that was read once is reported until the agent ends, as unhealthy while it cannot be read. A card that was never
readable is left out, with the reason in the log.
"""

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock
from types import TracebackType
from typing import Any, Final, Self

from agent import daemon_call, processes
from agent.device_use import Measured
from agent.health import CriticalEvent, Health, Probe
from agent.inventory import MigInstanceError, UnmeasuredError
from agent.nvml import mig_creation
from agent.nvml.card_probes import CardProbes, Readings, Unreadable
from agent.nvml.card_reading import CardReading
from agent.nvml.event_watch import EventWatch
from agent.nvml.node_devices import devices_of
from agent.nvml.nvml import NvmlError, call
from agent.nvml.pcie import PcieLevels
from agent.nvml.session import NvmlSession
from agent.nvml.use_probes import UseProbes
from agent.report import NodeReport
from agent.settings import AgentSettings
from allocation.mig import InstanceRequest
from cluster.gpu_node_status import NodeProblem
from cluster.log_once import LogOnce

log = logging.getLogger(__name__)

_STOP_SECONDS: Final = 2.0
_MIG_SECONDS: Final = 30.0
_NOT_LISTED: Final = "NVML no longer lists the card"
"""Why a card is unhealthy that the node does not have any more."""


class NvmlSource:
    """The cards of this machine. NVML is not called before the first reading, nor after the end of the block."""

    def __init__(
        self,
        *,
        node: str,
        settings: AgentSettings,
        wake: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Report the cards as those of `node`; a thread calls `wake` when another reading is needed."""
        self._node = node
        self._settings = settings
        self._wake = wake
        self._clock = clock
        self._health = Health(quiet_seconds=settings.quiet_seconds, ignored_xids=settings.ignored_xids)
        self._session = NvmlSession()
        self._probes = CardProbes(sysfs=Path(settings.sysfs), seconds=settings.probe_seconds)
        self._pcie = PcieLevels(seconds=settings.probe_seconds)
        self._use = UseProbes(
            container_of=partial(processes.container_of, Path(settings.procfs)), seconds=settings.probe_seconds
        )
        self._watch: EventWatch | None = None
        self._events: SimpleQueue[CriticalEvent] = SimpleQueue()
        self._readings: Readings = {}
        self._log_once = LogOnce()
        self._opened_at = 0.0
        self._is_complete = True
        self._is_unsure = False
        self._problem: NodeProblem | None = None
        self._mig_call: Future[None] | None = None
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock.acquire(blocking=False):  # a call that hangs must not keep the process
            self._close()
            self._lock.release()

    @property
    def was_available(self) -> bool:
        """Whether NVML could be opened at least once."""
        return self._session.has_opened

    def read(self) -> Mapping[str, NodeReport]:
        """Return the present state of every card that was ever read."""
        with self._lock:
            failures = self._read_cards()
            self._take_events()
            now = self._clock()
            messages = {
                uuid: self._health.evaluate(uuid, _probe(reading, failures.get(uuid, "")), now=now)
                for uuid, reading in self._readings.items()
            }
            for uuid, message in messages.items():
                self._log_once.report(f"card {uuid}", message)
            devices = devices_of(
                self._readings,
                messages=messages,
                lost=failures,
                missing={uuid for uuid, failure in failures.items() if failure == _NOT_LISTED},
                levels=self._pcie.levels,
                settings=self._settings,
            )
            report = NodeReport(
                self._node,
                devices,
                driver_version=self._session.driver,
                incomplete=self._is_unsure,
                problem=self._problem,
            )
            return {self._node: report}

    # ---- cards -----------------------------------------------------------------------------------------------------

    def _read_cards(self) -> dict[str, str]:
        """Read every card; return the failures of known cards by UUID."""
        try:
            self._open()
            count = self._session.count(seconds=self._settings.probe_seconds)
        except NvmlError as error:
            self._is_complete = False
            self._problem = NodeProblem("DriverMissing", str(error))
            self._log_once.report(f"NVML of node {self._node}", f"not available: {error}")
            return dict.fromkeys(self._readings, str(error))
        self._problem = None if count else NodeProblem("NoCards", "the driver lists no card")
        self._log_once.report(f"NVML of node {self._node}", "" if count else "no cards")
        read, unread = self._probes.read(count)
        for uuid, reading in read.items():
            self._readings[uuid] = reading.completed(self._readings.get(uuid))
            self._log_once.report(f"reading of card {uuid}", "; ".join(reading.notes))
        problem = self._pcie.read([reading.place for reading in read.values()])
        self._log_once.report(f"PCIe topology of node {self._node}", problem)
        failures = self._attribute(read, unread)
        self._is_complete = bool(count) and not unread and not failures
        self._watch_cards({reading.index for reading in read.values()})
        return failures

    def _open(self) -> None:
        now = self._clock()
        if self._is_complete or now - self._opened_at < self._settings.quiet_seconds or self._probes.is_busy:
            self._session.open()
            return
        # A card is missing. If it has come back since, NVML lists it only after another nvmlInit.
        self._opened_at = now
        if self._close():
            self._session.open()

    def _close(self) -> bool:
        """Close NVML unless a call is in progress; return whether it was closed."""
        is_changing_mig = self._mig_call is not None and not self._mig_call.done()
        if (
            is_changing_mig
            or self._probes.is_busy
            or self._pcie.is_busy
            or self._use.is_busy
            or (self._watch is not None and not self._watch.stop(seconds=_STOP_SECONDS))
        ):
            return False
        self._watch = None
        self._session.close()
        return True

    def _attribute(self, read: Readings, unread: Unreadable) -> dict[str, str]:
        """Return the failures of known cards that were not read, and log the other cards that are left out."""
        missing = {uuid: reading.index for uuid, reading in self._readings.items() if uuid not in read}
        # A card that the driver lists and cannot read may be any of these, and a driver that lists none has failed.
        self._is_unsure = any(not error.uuid for error in unread.values())
        is_gone = bool(read) and not self._is_unsure
        failures = dict.fromkeys(missing, _NOT_LISTED if is_gone else "NVML does not show the card")
        by_index = {index: uuid for uuid, index in missing.items()}
        for index, error in unread.items():
            uuid = error.uuid or by_index.get(index, "")
            if uuid in failures:
                failures[uuid] = str(error)
            self._log_once.report(f"card at index {index}", "" if uuid in failures else f"left out: {error}")
        return failures

    # ---- events ----------------------------------------------------------------------------------------------------

    def _watch_cards(self, indexes: set[int]) -> None:
        """Watch the events of these cards; a further card takes a new watch."""
        if self._watch is not None and (indexes <= self._watch.indexes or not self._watch.stop(seconds=_STOP_SECONDS)):
            return
        self._watch = EventWatch(indexes, on_event=self._on_event, on_unknown=self._wake, clock=self._clock)
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
            if self._health.add_event(event):
                log.warning("card %s: the driver reports %s", event.uuid, event)
            else:
                log.info("card %s: the driver reports %s, which the settings ignore", event.uuid, event)

    # ---- use -------------------------------------------------------------------------------------------------------

    def measure(self) -> Measured:
        """Return what the processes use of each card that is readable now (see `InventorySource`)."""
        with self._lock:
            if not self._session.is_open:
                raise UnmeasuredError(self._problem.message if self._problem is not None else "NVML is not open")
            self._use.start(
                {
                    uuid: [instance.uuid for instance in reading.mig.instances] if reading.mig is not None else []
                    for uuid, reading in self._readings.items()
                }
            )
        return self._use.finish()

    # ---- MIG instances ---------------------------------------------------------------------------------------------

    def create(self, node: str, request: InstanceRequest) -> None:
        """Create the requested instance (see `InventorySource`)."""
        mig = self._readings[request.card].mig if request.card in self._readings else None
        profiles = mig.profiles if mig is not None else ()
        profile = next((each for each in profiles if each.name == request.profile), None)
        if profile is None:
            raise MigInstanceError(f"card {request.card} of node {node} has no profile {request.profile}")
        self._change(
            request,
            lambda handle: mig_creation.create(
                handle, slice_count=profile.slice_count, slices=request.slices, memory_mib=profile.memory_mib
            ),
        )

    def destroy(self, node: str, request: InstanceRequest) -> None:  # noqa: ARG002 -- this source has one node
        """Destroy the requested instance (see `InventorySource`)."""
        self._change(request, lambda handle: mig_creation.destroy(handle, slices=request.slices))

    def _change(self, request: InstanceRequest, change: Callable[[Any], None]) -> None:
        def call_nvml() -> None:
            change(call("nvmlDeviceGetHandleByUUID", request.card))

        with self._lock:
            if self._mig_call is not None and not self._mig_call.done():
                raise MigInstanceError("NVML has not returned from the previous call")
            self._mig_call = daemon_call.start(call_nvml, name=f"MIG instance of card {request.card}")
            try:
                self._mig_call.result(_MIG_SECONDS)
            except (NvmlError, TimeoutError) as error:
                raise MigInstanceError(str(error) or f"NVML has not responded within {_MIG_SECONDS:g} s") from None


def _probe(reading: CardReading, failure: str) -> Probe:
    return Probe(failure) if failure else Probe(reading.recovery, reading.uncorrected)
