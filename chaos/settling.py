"""The end of a run: when all faults are healed, no schedulable pod may wait, and the ledger must match the books."""

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path

from chaos import audit, ledger
from chaos.books import Books
from chaos.share import Use
from chaos.violation import Kind, Violation
from chaos.world import NAMESPACE, World

_SECONDS = 120.0
_FOUND = "the ledger differs from a recount"


async def settle(world: World, books: Books) -> list[Violation]:
    """Wait until every schedulable pod has a node, and ledger and Leases match the books; return what remains wrong."""
    deadline = time.monotonic() + _SECONDS
    while remaining := await _unsettled(world, books):
        if time.monotonic() >= deadline:
            break
        await asyncio.sleep(0.5)
    healed = await asyncio.to_thread(found_by_leaders, [each.daemon.log for each in world.schedulers])
    twice = await asyncio.to_thread(audit.bound_twice, world.layout.audit_log, namespace=NAMESPACE, since=world.since)
    return [
        *remaining,
        *healed,
        *(Violation(Kind.BOUND_TWICE, pod, "the API server accepted two Bindings") for pod in twice),
    ]


async def _unsettled(world: World, books: Books) -> list[Violation]:
    believed = await asyncio.to_thread(ledger.believed, world.schedulers)
    waiting = [
        Violation(Kind.WAITS, pod, f"still pending {_SECONDS:g} s after all faults were healed")
        for pod in books.fitting()
    ]
    return [*waiting, *books.leases.differences, *differences(books.used(), believed)]


def differences(counted: dict[str, Use], believed: dict[str, Use]) -> list[Violation]:
    """Return a violation for each card for which the scheduler's ledger differs from what its pods hold."""
    return [
        Violation(Kind.LEDGER, uuid, f"its pods hold {use}, the scheduler's ledger has {believed.get(uuid)}")
        for uuid, use in counted.items()
        if believed.get(uuid) != use
    ]


def found_by_leaders(logs: Iterable[Path]) -> list[Violation]:
    """Return a violation for each difference that a leader found in its ledger, although the next term has none."""
    lines = (line for log in logs for line in log.read_text(encoding="utf-8", errors="replace").splitlines())
    return [Violation(Kind.LEDGER, "a term ended", line) for line in lines if _FOUND in line]
