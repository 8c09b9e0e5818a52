"""What events and the API say of a resize."""

from collections.abc import Iterable, Iterator

from allocation.adjustment import ScalingQuotaExceededError
from allocation.allocation import CardShare
from allocation.errors import AllocationError
from scheduler.resize.evaluation import Resize

_CARDS = 8
"""The cards that a message names."""


def resized(change: Resize) -> str:
    """Return what a pod has instead of what."""
    containers = change.after.containers
    changes = [
        f"container {name}: {_amounts(change.before.containers[name])} become {_amounts(shares)} of each card"
        for name, shares in containers.items()
        if shares != change.before.containers[name]
    ]
    return f"{'; '.join(changes)}. A container has them from its next start; until then the larger amounts count"


def refused(error: AllocationError | str) -> str:
    """Return why a pod does not get a size, and if too little is left, what is."""
    if not isinstance(error, ScalingQuotaExceededError):
        return str(error)
    left = [f"{uuid} has {amounts} left" for uuid, amounts in sorted(error.remaining.items())[:_CARDS]]
    return "; ".join((str(error), *left))


def _amounts(shares: Iterable[CardShare]) -> str:
    return " or ".join(sorted(set(_each(shares))))


def _each(shares: Iterable[CardShare]) -> Iterator[str]:
    for share in shares:
        most = share.at_limits()
        up_to = "" if most is share else f" (up to {most.memory_mib} MiB and {most.cores / 10:g} %)"
        yield f"{share.memory_mib} MiB and {share.cores / 10:g} %{up_to}"
