"""The GpuClaims whose status is to be written, with the earlier statuses that a watch must not miss."""

import asyncio

from cluster.gpu_claim import GpuClaimStatus

ClaimName = tuple[str, str]
"""Namespace and name."""


class StatusQueue:
    """Claims in the order in which they changed.

    The current status of a claim is computed when it is written. Before it come the last statuses of the phases that
    it went through since, so that whoever watches a claim sees that it was Reserved before it was Bound. Of each phase
    only one is kept: a slow API server costs few writes.
    """

    def __init__(self) -> None:
        self._due: dict[ClaimName, list[GpuClaimStatus]] = {}
        self._changed = asyncio.Event()

    def __contains__(self, name: ClaimName) -> bool:
        """Whether the status of a claim is to be written."""
        return name in self._due

    def put(self, name: ClaimName) -> None:
        """Queue the current status of a claim."""
        self._due.setdefault(name, [])
        self._changed.set()

    def keep(self, name: ClaimName, status: GpuClaimStatus) -> None:
        """Queue `status` before a later one of another phase; ignored if the claim is not in the queue."""
        due = self._due.get(name)
        if due is not None:
            same = next((place for place, each in enumerate(due) if each.phase == status.phase), len(due))
            due[same:] = [status]

    def put_back(self, name: ClaimName, status: GpuClaimStatus) -> None:
        """Queue again a status that could not be written."""
        due = self._due.setdefault(name, [])
        if not any(each.phase == status.phase for each in due):
            due.insert(0, status)
        self._changed.set()

    def drop(self, name: ClaimName) -> None:
        """Forget a claim that was deleted."""
        self._due.pop(name, None)

    async def get(self) -> tuple[ClaimName, GpuClaimStatus | None]:
        """Remove and return the next claim with an earlier status, or None for its current one; wait for one."""
        while not self._due:
            self._changed.clear()
            await self._changed.wait()
        name, earlier = next(iter(self._due.items()))
        if earlier:
            return name, earlier.pop(0)
        del self._due[name]
        return name, None
