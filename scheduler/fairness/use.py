"""What the pods of each owner hold: running sums, which a decision reads in constant time."""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from copy import copy
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from allocation.allocation import Charge
from allocation.fairness.shares import NOTHING, Amounts
from allocation.quota import Burst
from allocation.steps import Steps

if TYPE_CHECKING:  # the command line adds up uses without numpy, which the ledger needs
    from allocation.ledger.ledger import Ledger, Reservation

Owner = TypeVar("Owner", bound=Hashable)


class Use(msgspec.Struct):
    """The sums over the pods of one owner.

    Attributes:
        memory_mib: of cards, as are `cores` in millicards, `tflops` in thousandths, and `cards` in shares, each of one.
        cpu: of nodes in millicores, as is `memory_bytes`; 0 where they are not counted.
        pods: how many there are.
        burst_memory_mib: what they may use of cards beyond what they hold, as are `burst_cores`.
    """

    memory_mib: int = 0
    cores: int = 0
    cards: int = 0
    tflops: int = 0
    cpu: int = 0
    memory_bytes: int = 0
    pods: int = 0
    burst_memory_mib: int = 0
    burst_cores: int = 0

    @property
    def amounts(self) -> Amounts:
        """The sums by dimension."""
        return self.memory_mib, self.cores, self.cards, self.tflops, self.cpu, self.memory_bytes

    def add(self, reservation: "Reservation", sign: int) -> None:
        """Add what a pod holds of its cards, or subtract it."""
        self.add_charges(reservation.charges, sign, tflops=reservation.tflops)

    def add_charges(self, charges: Iterable[Charge], sign: int, *, tflops: int) -> None:
        """Add what is charged, or subtract it; `tflops` are those of all `charges` (`Ledger.tflops`)."""
        for charge in charges:
            self.memory_mib += sign * charge.memory_mib
            self.cores += sign * charge.cores
            self.cards += sign * charge.slots
            self.burst_memory_mib += sign * charge.burst_memory_mib
            self.burst_cores += sign * charge.burst_cores
        self.tflops += sign * tflops

    @property
    def burst(self) -> Burst:
        """What the pods may use of cards beyond what they hold."""
        return Burst(self.burst_memory_mib, self.burst_cores)

    def at_limits(self) -> "Use":
        """Return what the pods may use at most."""
        return msgspec.structs.replace(
            self,
            memory_mib=self.memory_mib + self.burst_memory_mib,
            cores=self.cores + self.burst_cores,
            burst_memory_mib=0,
            burst_cores=0,
        )


class CountedPod(msgspec.Struct, Generic[Owner], frozen=True):
    """A pod with the owner that it is counted for, and what it holds of its node.

    Attributes:
        owner: what the pod is counted for, such as a queue.
        cpu: its CPU in millicores.
        memory_bytes: its memory.
    """

    owner: Owner
    cpu: int
    memory_bytes: int


class UseByOwner(Generic[Owner]):
    """The sums by owner, which follow the reservations in the ledger."""

    def __init__(self, ledger: "Ledger", *, on_change: Callable[[Owner], object] = lambda _: None) -> None:
        """Follow `ledger`, which knows pods by UID only; `on_change` is called with each owner whose sums change."""
        self._ledger = ledger
        self._on_change = on_change
        self._uses: dict[Owner, Use] = {}
        self._pods: dict[str, CountedPod[Owner]] = {}
        ledger.follow(self._follow)

    def __iter__(self) -> Iterator[Owner]:
        """Iterate over the owners with pods."""
        return iter(tuple(self._uses))

    def of(self, owner: Owner, *, without: Collection[str] = ()) -> Use:
        """Return what the pods of an owner hold, if the pods of the UIDs `without` held no cards."""
        use = self._uses.get(owner) or Use()
        return self._less(use, owner, without) if without else use

    def amounts_of(self, owner: Owner) -> Amounts:
        """Return what the pods of an owner hold by dimension."""
        use = self._uses.get(owner)
        return use.amounts if use is not None else NOTHING

    def _less(self, use: Use, owner: Owner, uids: Iterable[str]) -> Use:
        left = msgspec.structs.replace(use)
        for uid in uids:
            reservation = self._ledger.reservation(uid)
            if reservation is not None and self.owner(uid) == owner:
                left.add(reservation, -1)
        return left

    def owner(self, uid: str) -> Owner | None:
        """Return the owner that a pod is counted for; None if it is not counted."""
        counted = self._pods.get(uid)
        return counted.owner if counted is not None else None

    def amounts(self, uid: str) -> Amounts:
        """Return what a pod is counted with; nothing if it is not."""
        counted = self._pods.get(uid)
        if counted is None:
            return NOTHING
        use, reservation = Use(cpu=counted.cpu, memory_bytes=counted.memory_bytes), self._ledger.reservation(uid)
        if reservation is not None:
            use.add(reservation, 1)
        return use.amounts

    def snapshot(self) -> dict[str, CountedPod[Owner]]:
        """Return the pods that are counted at this moment, by UID; later changes do not touch them."""
        return self._pods.copy()

    def counts(self, uid: str, owner: Owner, *, cpu: int, memory_bytes: int) -> bool:
        """Whether a pod is counted for this owner, with these amounts of its node."""
        return self._pods.get(uid) == CountedPod(owner, cpu, memory_bytes)

    def differences(self) -> Steps[list[tuple[Owner, Use, Use]]]:
        """Return each owner whose sums differ from those of its pods: the owner, its sums, and those of its pods.

        All are of the moment of the first step, however long the others take.
        """
        pods, reservations = self.snapshot(), self._ledger.snapshot()
        actual = {owner: copy(use) for owner, use in self._uses.items()}
        expected: defaultdict[Owner, Use] = defaultdict(Use)
        for uid, counted in pods.items():
            use, reservation = expected[counted.owner], reservations.get(uid)
            use.pods += 1
            use.cpu += counted.cpu
            use.memory_bytes += counted.memory_bytes
            if reservation is not None:
                use.add(reservation, 1)
            yield
        return [
            (owner, actual.get(owner, Use()), expected[owner])
            for owner in {**actual, **expected}
            if actual.get(owner) != expected[owner]
        ]

    def add_pod(self, uid: str, owner: Owner, *, cpu: int = 0, memory_bytes: int = 0) -> None:
        """Count what a pod holds, now and later; if it was counted for another owner, move it."""
        counted = CountedPod(owner, cpu, memory_bytes)
        if self._pods.get(uid) != counted:
            self.remove_pod(uid)
            self._pods[uid] = counted
            self._count(uid, counted, 1)

    def remove_pod(self, uid: str) -> None:
        """Stop counting what a pod holds."""
        counted = self._pods.get(uid)
        if counted is not None:
            self._count(uid, counted, -1)
            del self._pods[uid]
            if not self._uses[counted.owner].pods:
                del self._uses[counted.owner]

    def _count(self, uid: str, counted: CountedPod[Owner], sign: int) -> None:
        use = self._uses.setdefault(counted.owner, Use())
        use.pods += sign
        use.cpu += sign * counted.cpu
        use.memory_bytes += sign * counted.memory_bytes
        reservation = self._ledger.reservation(uid)
        if reservation is not None:
            self._follow(reservation, sign)
        else:
            self._on_change(counted.owner)

    def _follow(self, reservation: "Reservation", sign: int) -> None:
        counted = self._pods.get(reservation.uid)
        if counted is not None:
            self._uses[counted.owner].add(reservation, sign)
            self._on_change(counted.owner)
