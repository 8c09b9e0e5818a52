"""Wins the Lease, raises the fence, waits for the predecessor's Bindings, and schedules until the term ends."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from allocation.ledger.ledger import Ledger
from cluster.election import Election, Term
from cluster.errors import ClusterError
from scheduler.fence import DeposedError, Fence
from scheduler.settings import SchedulerSettings
from scheduler.term import LeaderTerm

log = logging.getLogger(__name__)


class Leader:
    """Leads while this replica holds the Lease; otherwise the replica stands by."""

    def __init__(
        self,
        *,
        election: Election,
        fence: Fence,
        settings: SchedulerSettings,
        build_term: Callable[[Term], LeaderTerm],
    ) -> None:
        """Lead with what `build_term` returns; it is called for each term."""
        self._election = election
        self._fence = fence
        self._settings = settings
        self._build_term = build_term
        self._term: LeaderTerm | None = None

    @property
    def unready(self) -> str:
        """Why this replica neither schedules nor stands by while another one leads; empty if it does."""
        is_ready = self._term.is_deciding if self._term is not None else self._election.is_standing_by
        if is_ready:
            return ""
        problem = self._term.problem if self._term is not None else ""
        return "the scheduler has not read the cluster yet" + (f": {problem}" if problem else "")

    @property
    def deciding(self) -> LeaderTerm | None:
        """The current term, or None while this replica does not schedule."""
        return self._term if self._term is not None and self._term.is_deciding else None

    @property
    def ledger(self) -> Ledger | None:
        """The ledger of the current term, or None while this replica does not schedule."""
        return self.deciding.ledger if self.deciding is not None else None

    @property
    def holder(self) -> str:
        """The identity of the replica that leads, as far as this one knows; otherwise empty."""
        return self._election.holder

    async def run(self, ended: "asyncio.Future[None]") -> None:
        """Campaign and lead until `ended`, and release the Lease then."""
        while not ended.done():
            winning = asyncio.create_task(self._election.win(last_epoch=self._fence.last_epoch))
            await asyncio.wait((winning, ended), return_when=asyncio.FIRST_COMPLETED)
            if winning.done():
                await self._lead(winning.result(), ended)
            else:
                winning.cancel()
                with suppress(asyncio.CancelledError):
                    await winning

    async def _lead(self, term: Term, ended: "asyncio.Future[None]") -> None:
        log.info("leading with token %s", term.token)
        self._term = leader_term = self._build_term(term)
        tasks = {
            asyncio.create_task(self._election.hold(), name="lease"),
            asyncio.create_task(self._decide(term, leader_term), name="decisions"),
        }
        try:
            await asyncio.wait({*tasks, ended}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done() or not self._election.may_lead or leader_term.is_wrong:
                await self._hand_over(leader_term, tasks)
        finally:
            for task in tasks:
                task.cancel()
            leader_term.abandon()
            self._term = None
            for task, outcome in zip(tasks, await asyncio.gather(*tasks, return_exceptions=True), strict=True):
                if isinstance(outcome, Exception):
                    log.error("the term ends because of an error: %s: %s", task.get_name(), outcome, exc_info=outcome)
            log.info("stopped leading with token %s", term.token)

    async def _decide(self, term: Term, leader_term: LeaderTerm) -> None:
        """Raise the fence and schedule; return when another replica leads."""
        try:
            await self._raise_fence(term)
        except DeposedError as error:
            log.warning("%s", error)
            return
        wait_seconds = self._settings.request_timeout_seconds if term.follows_another else 0.0
        log.info("the previous term %s", "did not hand over: waiting" if wait_seconds else "handed over")
        async with asyncio.TaskGroup() as group:
            deciding = group.create_task(leader_term.run(wait_seconds=wait_seconds))
            guarding = group.create_task(self._keep_fence(term))
            await asyncio.wait((deciding, guarding), return_when=asyncio.FIRST_COMPLETED)
            deciding.cancel()
            guarding.cancel()

    async def _raise_fence(self, term: Term) -> None:
        """Raise the fence, and retry after errors; the loss of the Lease ends the attempts."""
        while True:
            try:
                return await self._fence.raise_for(term)
            except ClusterError as error:
                log.warning("cannot raise the fence: %s", error)
            await asyncio.sleep(self._settings.election.retry_seconds)

    async def _keep_fence(self, term: Term) -> None:
        """Raise the fence again if it was deleted; return when it has a higher epoch."""
        while True:
            await asyncio.sleep(self._settings.election.retry_seconds)
            try:
                await self._raise_fence(term)
            except DeposedError as error:
                log.warning("%s", error)
                return

    async def _hand_over(self, leader_term: LeaderTerm, tasks: "set[asyncio.Task[None]]") -> None:
        """Stop scheduling, wait for the writes in progress, and release the Lease, so that no successor has to wait."""
        log.info("no pods are scheduled any more: waiting for the writes in progress")
        for task in tasks:
            if task.get_name() == "decisions":
                task.cancel()
        if await leader_term.drain(self._settings.drain_seconds):
            await self._election.release()
