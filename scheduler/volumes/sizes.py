"""Sizes of claims and volumes in bytes."""

from allocation import quantity
from scheduler.volumes.objects import StorageAmount


def size_of(amount: StorageAmount) -> int:
    """Return an amount in bytes, rounded up.

    Raises:
        AllocationError: it is not a quantity; the API server lets no such object through.
    """
    return quantity.units(amount.storage)
