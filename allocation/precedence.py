"""Which source decides about the cards of a pod (docs/gpubindings.md#which-source-decides).

The sources count in this order, and each comes before the next ones only in what it says:

1. a static allocation, which admission accepts from trusted identities only,
2. the GPUBindings of the pod's application,
3. the pod's GpuClaim,
4. the resources of its containers,
5. the defaults of quotas, then those of the configuration.

Of the first three, two that differ are an error that names both. Admission and the scheduler ask the same function, so
that a pod which one of them accepts is not refused, or read in another way, by the other.
"""

import msgspec

from allocation import names
from allocation.allocation import Allocation, CardShare, ClaimMark
from allocation.bindings.granted import Granted
from allocation.claim import ClaimDevices
from allocation.errors import InvalidFieldError
from allocation.request import MILLI_PER_PERCENT

_STATIC = f'metadata.annotations["{names.ALLOCATION}"]'
_EQUAL = "make both equal"


class Decision(msgspec.Struct, frozen=True):
    """What decides about the cards of a pod, without what does not count.

    Attributes:
        static: its static allocation, with the mark of its claim; None if the scheduler chooses the cards.
        granted: what GPUBindings give it; None if they do not concern it, or if a static allocation says all.
        devices: what its claim gives; None without a claim.
    """

    static: Allocation | None = None
    granted: Granted | None = None
    devices: ClaimDevices | None = None

    @property
    def is_instance(self) -> bool:
        """Whether the pod gets MIG instances by its claim: no binding and no share mode divides an instance."""
        return self.devices is not None and self.devices.exclusivity == "MIG"

    @property
    def memory_mib(self) -> int | None:
        """The memory of each card in MiB, if all bindings of the pod set the same; None for whole cards and instances.

        Where they differ it is known once a card is chosen. Of a whole card the scheduler limits the memory.
        """
        if self.granted is None or (self.devices is not None and self.devices.exclusivity != "Shared"):
            return None
        amounts = {grant.memory_mib for grant in self.granted.grants}
        return amounts.pop() if len(amounts) == 1 else None


def decide(
    static: Allocation | None, granted: Granted | None, *, claim: str = "", devices: ClaimDevices | None = None
) -> Decision:
    """Return what decides about the cards of a pod, whose `claim`, if it has one, gives `devices`.

    Raises:
        InvalidFieldError: two of the sources differ.
    """
    if static is None:
        return Decision(None, _agreeing(granted, claim, devices), devices)
    if devices is not None:
        static = _of_claim(static, ClaimMark(claim, devices.exclusivity), devices)
    elif static.claim is not None:
        remedy = f"add annotation {names.CLAIM}, or remove the claim from the allocation"
        raise _invalid(f"claim {static.claim.name}", "the pod names no GpuClaim", remedy)
    _check_granted(static, granted)
    return Decision(static, None, devices)


def _agreeing(granted: Granted | None, claim: str, devices: ClaimDevices | None) -> Granted | None:
    """Return the grants whose memory is that of the claim, as far as both say it.

    Raises:
        InvalidFieldError: all of them set another amount.
    """
    if granted is None or devices is None or devices.exclusivity != "Shared" or devices.memory_mib is None:
        return granted
    agreeing = tuple(grant for grant in granted.grants if grant.memory_mib in (None, devices.memory_mib))
    if granted.grants and not agreeing:
        other = granted.grants[0]
        raise InvalidFieldError(
            field=f"spec.devices.memoryMiB of GpuClaim {claim}",
            value=devices.memory_mib,
            expected=f"GPUBinding {other.binding} gives {granted.identity} {other.memory_mib} MiB of card {other.card}",
            remedy=f"{_EQUAL}, or create a claim without memoryMiB",
        )
    return msgspec.structs.replace(granted, grants=agreeing)


def _of_claim(static: Allocation, mark: ClaimMark, devices: ClaimDevices) -> Allocation:
    """Return a static allocation with the mark of the pod's claim, so that each card is charged once.

    Raises:
        InvalidFieldError: allocation and claim differ.
    """
    if static.claim not in (None, mark):
        stated = f"claim {static.claim.name}, {static.claim.exclusivity}"
        raise _invalid(stated, f"the pod names GpuClaim {mark.name}, {mark.exclusivity}", _EQUAL)
    cards: set[tuple[str, ...]] = set()
    for container, shares in static.containers.items():
        path = f"containers.{container}"
        cards.add(tuple(share.uuid for share in shares))
        if len(shares) != devices.count:
            raise _invalid(f"{path}: {len(shares)} cards", f"GpuClaim {mark.name} gives {devices.count} cards", _EQUAL)
        if devices.memory_mib is not None and shares[0].memory_mib != devices.memory_mib:
            given = f"GpuClaim {mark.name} gives {devices.memory_mib} MiB of each card"
            raise _invalid(f"{path}: memoryMiB {shares[0].memory_mib}", given, _EQUAL)
        percent = 100 if devices.exclusivity == "Exclusive" else devices.cores
        if percent is not None and shares[0].cores != percent * MILLI_PER_PERCENT:
            given = f"GpuClaim {mark.name} gives {percent} % of each card, cores {percent * MILLI_PER_PERCENT}"
            raise _invalid(f"{path}: cores {shares[0].cores}", given, _EQUAL)
    if len(cards) > 1:
        same = f"the containers of GpuClaim {mark.name} have the same cards"
        raise _invalid("containers", same, "name them in one order")
    return msgspec.structs.replace(static, claim=mark)


def _check_granted(static: Allocation, granted: Granted | None) -> None:
    """Check that a static allocation gives a pod of an application only what its bindings give."""
    if granted is None or granted.identity is None:
        return
    grants = {grant.card: grant for grant in granted.grants}
    for container, shares in static.containers.items():
        for share in shares:
            path, grant = f"containers.{container}: card {share.uuid}", grants.get(share.parent or share.uuid)
            if grant is None:
                expected = f"no GPUBinding gives it to {granted.identity}"
                raise _invalid(path, expected, "name a card that is bound to the application, or create the binding")
            if _has_other_memory(share, grant.memory_mib):
                expected = f"GPUBinding {grant.binding} gives {granted.identity} {grant.memory_mib} MiB"
                raise _invalid(f"{path}, memoryMiB {share.memory_mib}", expected, _EQUAL)


def _has_other_memory(share: CardShare, memory_mib: int | None) -> bool:
    return memory_mib is not None and not share.parent and share.memory_mib != memory_mib


def _invalid(value: str, expected: str, remedy: str) -> InvalidFieldError:
    return InvalidFieldError(field=_STATIC, value=value, expected=expected, remedy=remedy)
