"""What `kubectl gpu capacity` shows."""

import msgspec

from cli.explain.addition import Addition
from scheduler.api.capacity_types import CapacityView


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
