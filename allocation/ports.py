"""Host ports for pods with `hostNetwork`, each of one live pod at a time. The ports in use are the bits of a number."""

from allocation.errors import AllocationError


class Ports:
    """A range of ports; the lowest free one is assigned."""

    def __init__(self, start: int, end: int) -> None:
        """Assign ports from `start` to `end`, which is not one of them.

        Raises:
            AllocationError: the range is empty, or not of ports.
        """
        if not 1 <= start < end <= 65536:
            raise AllocationError(f"ports from {start} to {end}, without the last: 1 <= start < end <= 65536 must hold")
        self._start, self._end = start, end
        self._used = 0
        self._by_uid: dict[str, int] = {}

    def assign(self, uid: str) -> int:
        """Return the port of the pod with `uid`, which is a new one unless it has one.

        Raises:
            AllocationError: live pods have all ports.
        """
        if uid in self._by_uid:
            return self._by_uid[uid]
        lowest_free = ~self._used & (self._used + 1)
        port = self._start + lowest_free.bit_length() - 1
        if port >= self._end:
            raise AllocationError(f"live pods have all ports from {self._start} to {self._end - 1}: pod {uid} has none")
        self.restore(uid, port)
        return port

    def restore(self, uid: str, port: int) -> None:
        """Record the port that a live pod had before a restart.

        Raises:
            AllocationError: the port is not in the range, another pod has it, or the pod has another one.
        """
        if not self._start <= port < self._end:
            raise AllocationError(f"pod {uid} has port {port}: ports are from {self._start} to {self._end - 1}")
        own = self._by_uid.get(uid)
        if own == port:
            return
        bit = 1 << (port - self._start)
        if own is not None or self._used & bit:
            raise AllocationError(f"pod {uid} has port {port}, but another pod has it, or the pod has {own}")
        self._used |= bit
        self._by_uid[uid] = port

    def release(self, uid: str) -> None:
        """Release the port of a pod that has ended; ignore a pod without one."""
        port = self._by_uid.pop(uid, None)
        if port is not None:
            self._used &= ~(1 << (port - self._start))
