"""The pods of one queue that need no event to be tried, in order."""

import heapq

from scheduler.queue.entry import Entry


class ActivePods:
    """A heap: the pod that is removed is nearly always the first one.

    Another pod that is removed stays in the heap until it is the first one, or until half of the heap are such pods.
    """

    __slots__ = ("_heap", "_removed")

    def __init__(self) -> None:
        self._heap: list[tuple[int, str, int, Entry]] = []
        """Each pod after its order; flat, because nested tuples would be compared twice."""
        self._removed: set[Entry] = set()
        """Of the pods in the heap, of which the first is never among them."""

    @property
    def first(self) -> Entry | None:
        """The first pod; None without any."""
        return self._heap[0][-1] if self._heap else None

    def add(self, entry: Entry) -> None:
        """Add a pod."""
        if entry in self._removed:
            self._removed.remove(entry)
        else:
            heapq.heappush(self._heap, (*entry.order, entry))

    def remove(self, entry: Entry) -> None:
        """Remove a pod."""
        if self.first is entry:
            heapq.heappop(self._heap)
            while self._removed and self.first in self._removed:
                self._removed.remove(heapq.heappop(self._heap)[-1])
            return
        self._removed.add(entry)
        if 2 * len(self._removed) > len(self._heap):
            self._heap = [each for each in self._heap if each[-1] not in self._removed]
            heapq.heapify(self._heap)
            self._removed.clear()
