"""Small numbers for pods, each of one live pod at a time, as TensorFusion's device plugin identifies its pods."""

from typing import Final

from allocation.errors import AllocationError

FIRST: Final = 1
LAST: Final = 128


class Indexes:
    """The numbers from 1 to 128 in turn: a released one is used again as late as possible."""

    def __init__(self) -> None:
        self._by_uid: dict[str, int] = {}
        self._owners: dict[int, str] = {}
        self._latest = LAST

    def assign(self, uid: str) -> int:
        """Return the number of the pod with `uid`, which is a new one unless it has one.

        Raises:
            AllocationError: live pods have all numbers.
        """
        if uid in self._by_uid:
            return self._by_uid[uid]
        for step in range(1, LAST - FIRST + 2):
            index = (self._latest - FIRST + step) % (LAST - FIRST + 1) + FIRST
            if index not in self._owners:
                self._latest = index
                self.restore(uid, index)
                return index
        raise AllocationError(f"{LAST} live pods have all indexes from {FIRST} to {LAST}: pod {uid} waits for one")

    def restore(self, uid: str, index: int) -> None:
        """Record the number that a live pod had before a restart.

        Raises:
            AllocationError: there is no such number, another pod has it, or the pod has another one.
        """
        if not FIRST <= index <= LAST:
            raise AllocationError(f"pod {uid} has index {index}: indexes are from {FIRST} to {LAST}")
        owner, own = self._owners.get(index, uid), self._by_uid.get(uid, index)
        if owner != uid or own != index:
            raise AllocationError(f"pod {uid} has index {index}, but pod {owner} has it, or the pod has {own}")
        self._by_uid[uid], self._owners[index] = index, uid

    def release(self, uid: str) -> None:
        """Release the number of a pod that has ended; ignore a pod without one."""
        index = self._by_uid.pop(uid, None)
        if index is not None:
            del self._owners[index]
