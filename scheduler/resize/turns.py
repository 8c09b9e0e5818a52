"""Whose turn it is: namespaces take turns, so that one with many wishes delays no other, and each has one at a time."""

import asyncio
from contextlib import suppress


class Turns:
    """The pods that are to be looked at."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, None]] = {}
        """UIDs by namespace; the namespace whose turn is longest ago is the first."""
        self._busy: set[str] = set()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of pods."""
        return sum(map(len, self._waiting.values()))

    def add(self, namespace: str, uid: str) -> None:
        """Add a pod, unless it waits already."""
        self._waiting.setdefault(namespace, {}).setdefault(uid)
        self._changed.set()

    def drop(self, namespace: str, uid: str) -> None:
        """Remove a pod."""
        waiting = self._waiting.get(namespace, {})
        if uid in waiting:
            del waiting[uid]
            if not waiting:
                del self._waiting[namespace]

    def take(self) -> tuple[str, str] | None:
        """Take the first pod of the namespace whose turn it is; None if no namespace has one that is not busy."""
        namespace = next((each for each in self._waiting if each not in self._busy), None)
        if namespace is None:
            self._changed.clear()
            return None
        waiting = self._waiting.pop(namespace)
        uid = next(iter(waiting))
        del waiting[uid]
        if waiting:
            self._waiting[namespace] = waiting  # behind the others
        self._busy.add(namespace)
        return namespace, uid

    def end(self, namespace: str) -> None:
        """Note that the pod of a namespace that was taken has been looked at."""
        self._busy.discard(namespace)
        self._changed.set()

    async def wait(self, seconds: float) -> None:
        """Wait until there may be a pod to take, at most `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
