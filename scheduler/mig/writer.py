"""Writes the requests for MIG instances into the `spec` of GpuNodeStatus objects."""

import asyncio
import logging
from collections.abc import Callable

from cluster.api import MERGE_PATCH
from cluster.errors import ClusterError, ConflictError, NotFoundError
from cluster.resource import GPU_NODE_STATUSES
from scheduler.fenced_api import FencedApi
from scheduler.mig.requests import Due, InstanceRequests

log = logging.getLogger(__name__)

_PAUSE_SECONDS = 1.0


class RequestWriter:
    """The only writer of `spec.migInstances`, as long as this replica is trusted to lead."""

    def __init__(self, fenced: FencedApi, *, requests: InstanceRequests, on_cooled_down: Callable[[], None]) -> None:
        """Write `requests`; `on_cooled_down` is called when the set of cards that are cooling down changes."""
        self._fenced = fenced
        self._requests = requests
        self._on_cooled_down = on_cooled_down
        self._cooling_down: set[str] = set()

    async def run(self) -> None:
        """Write until cancelled, or until this replica is not trusted any more. The informers must be complete."""
        while True:
            due = self._requests.due()
            before, self._cooling_down = self._cooling_down, self._requests.cooling_down()
            if self._cooling_down != before:
                self._on_cooled_down()
            for each in due:
                if not self._fenced.is_trusted:
                    return
                await self._write(each)
            await self._requests.wait()

    async def _write(self, due: Due) -> None:
        # With the version, a list that the next leader has changed meanwhile is not overwritten.
        body = {"metadata": {"resourceVersion": due.version}, "spec": {"migInstances": due.requests}}
        try:
            await self._fenced.write("PATCH", GPU_NODE_STATUSES.path(name=due.node), body, content_type=MERGE_PATCH)
        except (ConflictError, NotFoundError):
            return  # the watch shows the current object, and the next run compares again
        except ClusterError as error:
            log.warning("node %s: the requests for MIG instances were not written, trying again: %s", due.node, error)
            await asyncio.sleep(_PAUSE_SECONDS)
            self._requests.retry()
        else:
            self._requests.mark_written(due)
            names = ", ".join(f"{each.profile} on {each.card} for {each.id}" for each in due.requests) or "none"
            log.info("node %s: the agent is asked for MIG instances: %s", due.node, names)
