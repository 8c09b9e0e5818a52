"""Who may choose cards now: what takes several steps must not see the middle of what another one does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """Locks that are held for the length of a computation.

    Attributes:
        turn: what is held while cards are chosen in several steps that others must not see: for the pods of a gang, or
            while pods are chosen to be evicted. A decision about a single pod needs none.
        decision: what the loop holds while it decides about a single pod.
        inquiry: what is held while a response of the API is computed that evaluates pods.
    """

    def __init__(self) -> None:
        """Begin with nothing held."""
        self.turn, self.decision, self.inquiry = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Keep all decisions and inquiries out while pods are reserved only to see whether they fit together."""
        async with self.inquiry, self.decision, self.turn:
            yield
