"""The label values of metrics that other packages produce."""

import enum
from typing import Literal

Path = Literal["cached", "full", "single_node"]
"""How a pod was scheduled: with node rankings cached for equal pods, over every node, or on one given node."""

BindError = Literal["conflict", "gone", "unknown", "fenced", "refused"]
"""Why a Binding was not acknowledged: 409, 404, no response or 5xx, a newer leader's fence, or anything else."""


class Outcome(enum.Enum):
    """How a Binding ended."""

    BOUND = "bound"
    GONE = "gone"
    """The pod is deleted, or another pod has its name."""
    TAKEN = "taken"
    """Another scheduler bound the pod."""
    REFUSED = "refused"
    """The API server refuses this Binding."""
