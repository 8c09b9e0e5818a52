"""The end of a run: everything is healed, so soon nobody may wait and everybody must count alike."""

import asyncio
import time

from chaos import audit, ledger
from chaos.books import Books
from chaos.share import Use
from chaos.violation import Kind, Violation
from chaos.world import NAMESPACE, World

_SECONDS = 120.0


async def settle(world: World, books: Books) -> list[Violation]:
    """Wait until whoever fits has a node and the scheduler's ledger is what was counted; answer what was broken."""
    deadline = time.monotonic() + _SECONDS
    while found := await _unsettled(world, books):
        if time.monotonic() >= deadline:
            break
        await asyncio.sleep(0.5)
    twice = await asyncio.to_thread(audit.bound_twice, world.layout.audit_log, namespace=NAMESPACE)
    return [*found, *(Violation(Kind.BOUND_TWICE, pod, "two Bindings of it were taken") for pod in twice)]


async def _unsettled(world: World, books: Books) -> list[Violation]:
    believed = await asyncio.to_thread(ledger.believed, world.schedulers)
    waiting = [Violation(Kind.WAITS, pod, "still, long after everything was healed") for pod in books.fitting()]
    return [*waiting, *differences(books.used(), believed)]


def differences(counted: dict[str, Use], believed: dict[str, Use]) -> list[Violation]:
    """Answer the cards of which the scheduler believes something else than what its pods have."""
    return [
        Violation(Kind.LEDGER, uuid, f"its pods have {use}, the scheduler believes {believed.get(uuid)}")
        for uuid, use in counted.items()
        if believed.get(uuid) != use
    ]
