"""Writes the statuses of GpuClaims."""

from asyncio import sleep

from cluster.backoff import Backoff
from cluster.gpu_claim import GpuClaimStatus
from cluster.metadata import ObjectMeta
from cluster.resource import GPU_CLAIMS
from scheduler.claims.claims import Claims
from scheduler.claims.status import patch
from scheduler.claims.status_queue import ClaimName
from scheduler.fenced_api import FencedApi
from scheduler.status_writer import write_status

_FIRST_PAUSE, _LONGEST_PAUSE, _JITTER = 0.5, 10.0, (0.8, 1.2)


class StatusWriter:
    """The only writer of the status of claims, as long as this replica is trusted to lead."""

    def __init__(self, fenced: FencedApi, claims: Claims) -> None:
        self._fenced = fenced
        self._claims = claims

    async def run(self) -> None:
        """Write until cancelled, or until this replica is not trusted any more. The informers must be complete.

        Statuses that the last leader did not write, or wrote ahead of what happened, are written first.
        """
        self._claims.publish()
        backoff = Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE, jitter=_JITTER)
        while True:
            name, earlier = await self._claims.statuses.get()
            if not self._fenced.is_trusted:
                return
            status = self._claims.next_status(name, earlier)
            if status is None:
                continue
            uid = self._claims.uid(name)
            if await self._write(name, status, uid=uid):
                backoff.reset()
            else:
                self._claims.write_again(name, status, uid=uid)
                await sleep(backoff.next())

    async def _write(self, name: ClaimName, status: GpuClaimStatus, *, uid: str) -> bool:
        """Write a status; return whether nothing is left to do."""
        meta = ObjectMeta(name=name[1], namespace=name[0], uid=uid)
        error = await write_status(self._fenced, GPU_CLAIMS, meta, patch(status))
        if error is None:
            self._claims.mark_written(name, status, uid=uid)
            return True
        # A status that the API server refuses is left out: it may accept the claim's next one.
        return not error.is_transient
