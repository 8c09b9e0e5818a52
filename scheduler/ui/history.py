"""How much memory of each card was in use in each of the last 60 minutes, as long as this replica has led."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation.ledger.card_table import MEMORY
from allocation.steps import Steps
from scheduler.pacing import Pacer
from scheduler.term import LeaderTerm

MINUTES: Final = 60
UNKNOWN: Final = -1
"""In place of an amount: of this minute nothing is known."""
_MINUTE_SECONDS: Final = 60
_STEP: Final = 200


class Samples(msgspec.Struct, frozen=True):
    """Of one node: the UUIDs of its cards, and MiB by minute modulo 60 and card."""

    uuids: tuple[str, ...]
    used: NDArray[np.int32]


class History:
    """The samples by node: 2 KB for 8 cards."""

    def __init__(self, term: Callable[[], LeaderTerm | None], *, unix: Callable[[], float] = time.time) -> None:
        """Sample the term that `term` returns; `unix` returns Unix seconds."""
        self._term = term
        self._unix = unix
        self._shown: LeaderTerm | None = None
        self._samples: dict[str, Samples] = {}
        self._minute = 0

    async def run(self) -> None:
        """Sample once a minute until cancelled."""
        while True:
            await Pacer().run(self.sample())
            await asyncio.sleep(_MINUTE_SECONDS - self._unix() % _MINUTE_SECONDS)

    def sample(self) -> Steps[None]:
        """Note what is used in this minute."""
        term, minute = self._term(), int(self._unix() // _MINUTE_SECONDS)
        if term is not self._shown:
            self._shown = term
            self._samples.clear()
        skipped = [each % MINUTES for each in range(max(self._minute + 1, minute - MINUTES), minute)]
        self._minute = minute
        if term is None:
            return
        ledger = term.ledger
        for node in self._samples.keys() - set(ledger.nodes):
            del self._samples[node]
        for number, node in enumerate(ledger.nodes, start=1):
            inventory, row = ledger.inventory(node), ledger.row(node)
            if inventory is not None and row is not None:
                samples = self._of(node, tuple(card.uuid for card in inventory.cards))
                samples.used[skipped] = UNKNOWN
                samples.used[minute % MINUTES] = ledger.used_lists(row)[MEMORY]
            if number % _STEP == 0:
                yield

    def of(self, node: str) -> tuple[int, dict[str, list[int]]]:
        """Return the last sampled minute, in Unix minutes, and by card MiB of the last 60, the oldest first."""
        samples = self._samples.get(node)
        if samples is None:
            return self._minute, {}
        ordered = np.roll(samples.used, -(self._minute + 1) % MINUTES, axis=0).T.tolist()
        return self._minute, dict(zip(samples.uuids, ordered, strict=True))

    def _of(self, node: str, uuids: tuple[str, ...]) -> Samples:
        samples = self._samples.get(node)
        if samples is None or samples.uuids != uuids:
            samples = self._samples[node] = Samples(uuids, np.full((MINUTES, len(uuids)), UNKNOWN, np.int32))
        return samples


NO_HISTORY: Final = History(lambda: None)
"""Nothing of the past is known."""
