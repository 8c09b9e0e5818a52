"""Faults at the moment of a certain write, by the proxies between schedulers and the API server."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import signal
    from collections.abc import AsyncIterator, Callable

    from aiohttp import ClientResponse, web

    from chaos.replica import Replica

_EXECUTED = 300
"""Statuses below this one say that a write was executed."""


class Trigger:
    """Acts once when the API server has executed the n-th write of a kind by any scheduler, before its response.

    Or, if it `holds` the write, before the API server gets it.

    Attributes:
        fired: set when it has acted.
        victim: the scheduler that has sent the write.
        released: a write that is held is forwarded once this is set.
        response: status and body that the API server answered to a write that was held.
    """

    def __init__(
        self,
        schedulers: list[Replica],
        method: str,
        path: str,
        *,
        skip: int = 0,
        text: bytes = b"",
        holds: bool = False,
    ) -> None:
        """Wait for requests with `method` whose path contains `path` and whose body contains `text`, after `skip`."""
        self.fired = asyncio.Event()
        self.released = asyncio.Event()
        self.victim: Replica | None = None
        self.response: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        self._expected = (method, path, text)
        self._skip = skip
        self._holds = holds
        self._act: Callable[[Replica], None] = lambda _: None
        self._schedulers = schedulers

    @asynccontextmanager
    async def armed(self, act: Callable[[Replica], None]) -> AsyncIterator[Trigger]:
        """Call `act` with the scheduler that has sent the write."""
        self._act = act
        before = [each.proxy._send for each in self._schedulers]
        for each in self._schedulers:
            self._watch(each)
        try:
            yield self
        finally:
            for each, send in zip(self._schedulers, before, strict=True):
                each.proxy._send = send  # type: ignore[method-assign]  # the proxy has no hook for other writes

    def _watch(self, replica: Replica) -> None:
        send = replica.proxy._send

        @asynccontextmanager
        async def sent(request: web.BaseRequest, body: bytes) -> AsyncIterator[ClientResponse]:
            method, path, text = self._expected
            is_expected = request.method == method and path in request.path and text in body
            is_held = is_expected and self._holds and self._reached(replica)
            if is_held:
                await self.released.wait()
            async with send(request, body) as upstream:
                if is_held:
                    self.response.set_result((upstream.status, (await upstream.read()).decode()))
                elif is_expected and not self._holds and upstream.status < _EXECUTED:
                    self._reached(replica)
                yield upstream

        replica.proxy._send = sent  # type: ignore[method-assign]  # the proxy has no hook for other writes

    def _reached(self, replica: Replica) -> bool:
        """Act if this is the write; return whether it is."""
        if self.fired.is_set():
            return False
        if self._skip:
            self._skip -= 1
            return False
        self.victim = replica
        self.fired.set()
        self._act(replica)
        return True


def send(number: signal.Signals) -> Callable[[Replica], None]:
    """Return what sends a signal to a scheduler at once."""

    def act(replica: Replica) -> None:
        assert replica.pid is not None
        os.kill(replica.pid, number)

    return act
