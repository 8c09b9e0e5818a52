"""Placement by difference: the same answer as `allocation.placement`, for requests that repeat.

`place` looks at every node each time and says why each does not fit. The index remembers what nodes are worth to the
shapes of request that it has seen; a test holds both to the same decision over random histories.
"""

from collections import OrderedDict
from collections.abc import Hashable

from allocation.constraints import Constraints
from allocation.ledger import Ledger
from allocation.request import PodRequest
from allocation.shape import Eligible, Shape

_SHAPES = 256


class Index:
    """The shapes of request that were seen lately, over one ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._shapes: OrderedDict[Hashable, Shape] = OrderedDict()

    def shape(
        self, request: PodRequest, constraints: Constraints, *, eligible: Eligible | None = None, key: Hashable = None
    ) -> Shape:
        """Answer what nodes are worth to a request; `key` stands for `eligible` among the shapes."""
        name = (_signature(request), constraints, key)
        shape = self._shapes.get(name)
        if shape is None:
            shape = self._shapes[name] = Shape(self._ledger, request, constraints, eligible)
            if len(self._shapes) > _SHAPES:
                self._shapes.popitem(last=False)
        else:
            self._shapes.move_to_end(name)
        return shape


def _signature(request: PodRequest) -> Hashable:
    """Answer what of a request decides where it fits: not the names of its containers."""
    return tuple(
        (container.kind, container.count, container.memory_mib, container.memory_percent, container.cores)
        for container in request.gpu_containers
    )
