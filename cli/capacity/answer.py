"""What `kubectl gpu capacity` shows."""

import msgspec

from scheduler.api.capacity_types import CapacityView


class Addition(msgspec.Struct, frozen=True):
    """Nodes that there could be: the name of the node that they are like, and how many."""

    template: str
    count: int


class Capacity(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What fits now, and what would fit with more nodes.

    Attributes:
        now: what fits.
        added: these nodes; None without any.
        with_nodes: what would fit then; None without any.
    """

    now: CapacityView
    added: Addition | None = None
    with_nodes: CapacityView | None = None
