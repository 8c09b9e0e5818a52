"""From campaign to campaign: win the Lease, raise the fence, wait out the predecessor, lead until the term ends."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from allocation.ledger import Ledger
from cluster.election import Election, Term
from cluster.errors import ClusterError
from scheduler.leadership import DeposedError, Fence
from scheduler.settings import SchedulerSettings
from scheduler.term import TermWork

log = logging.getLogger(__name__)


class Leader:
    """One replica's part in leading."""

    def __init__(
        self,
        *,
        election: Election,
        fence: Fence,
        settings: SchedulerSettings,
        work: Callable[[Term], TermWork],
    ) -> None:
        """Lead with `work`, made anew for each term."""
        self._election = election
        self._fence = fence
        self._settings = settings
        self._make_work = work
        self._work: TermWork | None = None

    @property
    def is_ready(self) -> bool:
        """Whether this replica decides, or stands by while another one leads."""
        if self._work is not None:
            return self._work.is_deciding
        return self._election.is_standing_by

    @property
    def deciding(self) -> TermWork | None:
        """The term under way, None while this replica does not decide."""
        return self._work if self._work is not None and self._work.is_deciding else None

    @property
    def ledger(self) -> Ledger | None:
        """Who has what, None while this replica does not decide."""
        return self.deciding.ledger if self.deciding is not None else None

    async def run(self, ended: "asyncio.Future[None]") -> None:
        """Campaign and lead until `ended`; a Lease that is held then is handed over."""
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
        self._work = work = self._make_work(term)
        duties = {
            asyncio.create_task(self._election.hold(), name="lease"),
            asyncio.create_task(self._decide(term, work), name="decisions"),
        }
        try:
            await asyncio.wait({*duties, ended}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done() or not self._election.may_lead:
                await self._hand_over(work, duties)
        finally:
            for duty in duties:
                duty.cancel()
            work.abandon()
            self._work = None
            for duty, outcome in zip(duties, await asyncio.gather(*duties, return_exceptions=True), strict=True):
                if isinstance(outcome, Exception):
                    log.error("the term ends: %s: %s", duty.get_name(), outcome, exc_info=outcome)
            log.info("leading no more with token %s", term.token)

    async def _decide(self, term: Term, work: TermWork) -> None:
        """Raise the fence and decide; returns when somebody else leads."""
        try:
            await self._raise_fence(term)
        except DeposedError as error:
            log.warning("%s", error)
            return
        wait_seconds = self._settings.request_timeout_seconds if term.follows_another else 0.0
        log.info("the last term %s", "ended without a word: waiting" if wait_seconds else "handed over in order")
        async with asyncio.TaskGroup() as group:
            deciding = group.create_task(work.run(wait_seconds=wait_seconds))
            guarding = group.create_task(self._keep_fence(term))
            await asyncio.wait((deciding, guarding), return_when=asyncio.FIRST_COMPLETED)
            deciding.cancel()
            guarding.cancel()

    async def _raise_fence(self, term: Term) -> None:
        """Raise the fence, trying until it stands; the Lease ends the attempt if it takes too long."""
        while True:
            try:
                return await self._fence.raise_for(term)
            except ClusterError as error:
                log.warning("the fence could not be raised: %s", error)
            await asyncio.sleep(self._settings.election.retry_seconds)

    async def _keep_fence(self, term: Term) -> None:
        """Put the fence back where somebody deletes it; returns when a higher epoch stands there."""
        while True:
            await asyncio.sleep(self._settings.election.retry_seconds)
            try:
                await self._raise_fence(term)
            except DeposedError as error:
                log.warning("%s", error)
                return

    async def _hand_over(self, work: TermWork, duties: "set[asyncio.Task[None]]") -> None:
        """Stop deciding, let the writes under way end, and free the Lease for a successor that need not wait."""
        log.info("ending: waiting for the writes under way")
        for duty in duties:
            if duty.get_name() == "decisions":
                duty.cancel()
        if await work.drain(self._settings.drain_seconds):
            await self._election.release()
