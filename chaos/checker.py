"""The checker watches the API server, records every change in its books, and reports each broken promise."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from chaos import leases
from chaos.books import Books
from chaos.journal import Handlers, Journal
from chaos.violation import Violation
from cluster.api import Api
from cluster.resource import GPU_CLAIMS, GPU_NODE_STATUSES, LEASES, NODES, PODS

_TICK_SECONDS = 0.5
_SYSTEM = "tranche-system"


class Checker:
    """Watches the API server and keeps the books.

    Attributes:
        books: pods, cards and violations.
    """

    def __init__(
        self,
        api: Api,
        *,
        patience_seconds: float,
        lease_seconds: float,
        report: Callable[[Violation], None] = lambda _: None,
    ) -> None:
        """Read from `api`, which no fault affects, and `report` each violation as soon as it is observed."""
        self.books = Books(clock=time.monotonic, patience_seconds=patience_seconds, lease_seconds=lease_seconds)
        self._report = report
        self._reported = 0
        fleet = self.books.fleet
        self._fleet_journals = (
            Journal(api, NODES, _one_by_one(fleet.set_node, fleet.drop_node)),
            Journal(api, GPU_NODE_STATUSES, _one_by_one(fleet.set_status, fleet.drop_status)),
            Journal(api, LEASES, _one_by_one(self._set_lease, self._drop_lease), namespace=_SYSTEM),
            Journal(api, GPU_CLAIMS, _one_by_one(self.books.set_claim, _ignore)),
        )
        pods = Handlers(
            self._reporting(self.books.set_pod), self._reporting(self.books.drop_pod), self.books.replace_pods
        )
        self._pods = Journal(api, PODS, pods)

    @property
    def gaps(self) -> int:
        """How often changes of pods may have been missed because etcd had compacted them."""
        return self._pods.gaps

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch while the block runs. The fleet is read first, so that every card is known before a pod holds it."""
        tasks = [asyncio.create_task(each.run()) for each in self._fleet_journals]
        for each in self._fleet_journals:
            await each.synced.wait()
        tasks += [asyncio.create_task(self._pods.run()), asyncio.create_task(self._tick())]
        await self._pods.synced.wait()
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            for outcome in ended:
                if isinstance(outcome, Exception):
                    raise outcome

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self.books.tick()
            self._report_new()

    def _reporting(self, record: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
        def handler(content: dict[str, Any]) -> None:
            record(content)
            self._report_new()

        return handler

    def _report_new(self) -> None:
        for each in self.books.violations[self._reported :]:
            self._report(each)
        self._reported = len(self.books.violations)

    def _set_lease(self, lease: dict[str, Any]) -> None:
        if leases.is_of_card(lease):
            self.books.leases.set_lease(lease)
            self._report_new()
        else:
            self.books.fleet.set_lease(lease, now=time.monotonic())

    def _drop_lease(self, lease: dict[str, Any]) -> None:
        if leases.is_of_card(lease):
            self.books.leases.drop_lease(lease)


def _ignore(_content: dict[str, Any]) -> None:
    """Record nothing."""


def _one_by_one(on_set: Callable[[dict[str, Any]], None], on_drop: Callable[[dict[str, Any]], None]) -> Handlers:
    """Return handlers for a kind in which a gap does no harm: a list drops the absent objects and sets the others."""
    known: dict[str, dict[str, Any]] = {}

    def put(content: dict[str, Any]) -> None:
        known[content["metadata"]["name"]] = content
        on_set(content)

    def drop(content: dict[str, Any]) -> None:
        known.pop(content["metadata"]["name"], None)
        on_drop(content)

    def replace(contents: list[dict[str, Any]]) -> None:
        for gone in known.keys() - {content["metadata"]["name"] for content in contents}:
            drop(known[gone])
        for content in contents:
            put(content)

    return Handlers(put, drop, replace)
