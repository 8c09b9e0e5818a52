"""Takes one node from the ledger to DRA and back, and keeps its ResourceSlice equal to its cards in the meantime."""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from agent.dra import resource_slice
from agent.dra.node_view import NodeView
from agent.dra.resource_slice import Presence
from agent.dra.transition import Facts, Step, Wanted, next_step
from agent.report import NodeReport
from allocation.inventory import Card
from cluster.errors import ClusterError
from cluster.gpu_node_status import Allocator, Status
from cluster.log_once import LogOnce

log = logging.getLogger(__name__)

_STEP_SECONDS: Final = 1.0
_CHECK_SECONDS: Final = 10.0
"""Between two looks at a slice that only this agent should write; the kubelet may have deleted it."""
_RETRY_SECONDS: Final = 5.0
_UNSUPPORTED_SECONDS: Final = 300.0


class NodeAllocator:
    """The allocator of one node.

    Attributes:
        serves: whether the plugin may prepare claims now.
    """

    def __init__(
        self,
        view: NodeView,
        *,
        node: str,
        on_change: Callable[[], None],
        settle_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        new_drain: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        """Begin with a node of the ledger.

        Args:
            view: the API server.
            node: the node's name.
            on_change: called when `with_allocator` has changed.
            settle_seconds: for how long a slice has to be closed, and then gone, before the next step.
            clock: the time in seconds; monotonic.
            new_drain: returns what tells a drain from all others.
        """
        self._view = view
        self._node = node
        self._on_change = on_change
        self._settle_seconds = settle_seconds
        self._clock = clock
        self._new_drain = new_drain
        self._state: tuple[Allocator | None, str] = (None, "")
        self._published: tuple[Allocator | None, str] = (None, "")
        self._wanted: Wanted | None = None
        self._report: NodeReport | None = None
        self._node_uid = ""
        self._cordoned: frozenset[str] = frozenset()
        self._presence: tuple[Presence | None, float] = (None, 0.0)
        self._problems = LogOnce()
        self._woken = asyncio.Event()
        self.serves = False

    @property
    def allocator(self) -> Allocator:
        """Who gives out the cards, as this agent has decided; the status may say it a moment later."""
        return self._state[0] or "ledger"

    @property
    def cards(self) -> Mapping[str, Card]:
        """The cards that the node has now, by the names of their devices."""
        devices = self._report.devices if self._report is not None else ()
        return {
            resource_slice.device_name(each.card): each.card
            for each in devices
            if each.card.is_undivided and not each.missing
        }

    def restore(self, status: Status | None) -> None:
        """Go on with what an earlier process published."""
        if status is None or status.allocator is msgspec.UNSET:
            return
        self._state = self._published = (status.allocator, status.drain or "")
        self.serves = status.allocator == "dra"

    def set_wanted(self, wanted: Wanted) -> None:
        """Set the allocator that the node should have."""
        if wanted != self._wanted:
            self._wanted = wanted
            self.wake()

    def set_node(self, uid: str, cordoned: Collection[str]) -> None:
        """Set the UID of the Node, and the cards that take no new pods."""
        if (uid, cordoned) != (self._node_uid, self._cordoned):
            self._node_uid, self._cordoned = uid, frozenset(cordoned)
            self.wake()

    def with_allocator(self, report: NodeReport) -> NodeReport:
        """Return the report with the allocator, and follow its cards."""
        if report != self._report:
            self._report = report
            self.wake()
        allocator, drain = self._state
        return msgspec.structs.replace(report, allocator=allocator, drain=drain)

    def set_published(self, report: NodeReport) -> None:
        """Note that the API server has a report."""
        self._published = (report.allocator, report.drain)
        self.wake()

    def wake(self) -> None:
        """Look again at once."""
        self._woken.set()

    async def run(self) -> None:
        """Take step after step until cancelled. A failure is logged once, and the step is tried again."""
        while True:
            self._woken.clear()
            try:
                pause = await self.advance()
            except ClusterError as error:
                self._problems.report(f"node {self._node}, allocator {self.allocator}", str(error))
                pause = _RETRY_SECONDS
            else:
                self._problems.report(f"node {self._node}, allocator {self.allocator}", "")
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._woken.wait()

    async def advance(self) -> float:
        """Take the next step, and return in how many seconds to look again.

        Raises:
            ClusterError: the API server does not answer, or refuses.
        """
        report = self._report
        if self._wanted is None or report is None or self._published != self._state:
            return _CHECK_SECONDS
        if self.allocator == "ledger" and self._wanted == "dra" and (why := await self._view.unsupported()):
            self._problems.report(f"node {self._node}, allocator dra", why)
            return _UNSUPPORTED_SECONDS
        present = await self._view.slice()
        facts = await self._facts(self._wanted, present)
        step = next_step(self.allocator, facts)
        self.serves = step.serves
        await self._keep_slice(step, report, present)
        if step.allocator != self.allocator:
            self._change(step.allocator)
        is_at_rest = step.allocator == self.allocator == self._wanted and step.slice in (facts.slice, "open")
        return _CHECK_SECONDS if is_at_rest else min(_STEP_SECONDS, self._settle_seconds)

    async def _facts(self, wanted: Wanted, present: Mapping[str, Any] | None) -> Facts:
        """Return what is so now. The claims are listed after `serves` was set: none is prepared after the list."""
        now, found = self._clock(), resource_slice.presence(present)
        if self._presence[0] != found:
            self._presence = (found, now)
        drains = self.allocator == "draining" and wanted == "dra"
        leaves = self.allocator != "ledger" and wanted == "ledger"
        return Facts(
            wanted,
            is_confirmed=drains and await self._view.is_confirmed(self._state[1]),
            has_pods=drains and bool(await self._view.allocated_pod()),
            slice=found,
            is_settled=now - self._presence[1] >= self._settle_seconds,
            has_claims=leaves and bool(await self._view.claims()),
            serves=self.serves,
        )

    async def _keep_slice(self, step: Step, report: NodeReport, present: Mapping[str, Any] | None) -> None:
        if step.slice == "absent":
            if present is not None:
                await self._view.withdraw_slice()
                log.info("node %s: its ResourceSlice is withdrawn", self._node, extra={"node": self._node})
            return
        if not self._node_uid:
            return  # without its Node the slice would have no owner, and stay
        wanted = resource_slice.body(
            report,
            cordoned=self._cordoned,
            node_uid=self._node_uid,
            is_closed=step.slice == "closed",
            present=present,
        )
        if not resource_slice.is_same(wanted, present):
            await self._view.write_slice(wanted)
            log.info("node %s: its ResourceSlice is published, %s", self._node, step.slice, extra={"node": self._node})

    def _change(self, allocator: Allocator) -> None:
        drain = self._new_drain() if allocator == "draining" else ""
        log.info("node %s: allocator %s, after %s", self._node, allocator, self.allocator, extra={"node": self._node})
        self._state = (allocator, drain)
        self._on_change()
