"""Writes what is asked of agents into the `spec` of their GpuNodeStatus objects."""

import asyncio
import logging
from collections.abc import Callable

from cluster.api import Api
from cluster.errors import ClusterError, ConflictError, NotFoundError
from cluster.resource import GPU_NODE_STATUSES
from scheduler.mig_wishes import Due, Wishes
from scheduler.queue import Cure, Queue

log = logging.getLogger(__name__)

_PAUSE_SECONDS = 1.0


class WishWriter:
    """The only writer of `spec.migInstances`, for as long as it is trusted to lead."""

    def __init__(self, api: Api, *, wishes: Wishes, queue: Queue, is_trusted: Callable[[], bool]) -> None:
        self._api = api
        self._wishes = wishes
        self._queue = queue
        self._is_trusted = is_trusted
        self._barred: set[str] = set()

    async def run(self) -> None:
        """Write until cancelled, or until nobody is to trust us any more. The caches must be complete."""
        while True:
            due = self._wishes.due()
            before, self._barred = self._barred, self._wishes.barred()
            if self._barred != before:
                self._queue.wake(Cure.CAPACITY)  # whoever asked in vain may ask elsewhere, or here again
            for each in due:
                if not self._is_trusted():
                    return
                await self._write(each)
            await self._wishes.wait()

    async def _write(self, due: Due) -> None:
        # A list that somebody else has changed meanwhile, such as the next leader, is not written over.
        body = {"metadata": {"resourceVersion": due.version}, "spec": {"migInstances": due.wishes}}
        try:
            await self._api.merge(GPU_NODE_STATUSES, body, name=due.node)
        except (ConflictError, NotFoundError):
            return  # the watch shows what is there now, and then this is looked at again
        except ClusterError as error:
            log.warning("node %s: the wish for MIG instances is not written, trying again: %s", due.node, error)
            await asyncio.sleep(_PAUSE_SECONDS)
            self._wishes.again()
        else:
            self._wishes.written(due)
            names = ", ".join(f"{wish.profile} on {wish.card} for {wish.id}" for wish in due.wishes) or "none"
            log.info("node %s is asked for MIG instances: %s", due.node, names)
