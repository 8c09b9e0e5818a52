"""Wakes the tasks that wait for a change of certain objects."""

import asyncio
from collections.abc import Hashable, Iterator
from contextlib import contextmanager


class Wakeups:
    """The tasks that wait, by the keys of the objects that they wait for; a change costs only those concerned."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, set[asyncio.Event]] = {}

    @contextmanager
    def on(self, *keys: Hashable) -> Iterator[asyncio.Event]:
        """Yield an event that every change of one of `keys` sets while the block runs."""
        event = asyncio.Event()
        for key in keys:
            self._waiting.setdefault(key, set()).add(event)
        try:
            yield event
        finally:
            for key in keys:
                events = self._waiting[key]
                events.discard(event)
                if not events:
                    del self._waiting[key]

    def wake(self, key: Hashable) -> None:
        """Wake the tasks that wait for `key`."""
        for event in self._waiting.get(key, ()):
            event.set()
