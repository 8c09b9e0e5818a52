"""The label values of metrics that other packages produce."""

import enum
from typing import Literal

Path = Literal["cached", "full", "single_node"]
"""How a pod was scheduled: with node rankings cached for equal pods, over every node, or on one given node."""

BindError = Literal["conflict", "gone", "unknown", "fenced", "refused"]
"""Why a Binding was not acknowledged: 409, 404, no response or 5xx, a newer leader's fence, or anything else."""

DifferenceKind = Literal["pod", "card", "lease", "hold", "quota", "queue", "capacity"]
"""What the ledger counts wrongly: a pod, a card, one that a Lease or a hold keeps, or a sum."""


class Outcome(enum.Enum):
    """How a Binding ended."""

    BOUND = "bound"
    GONE = "gone"
    """The pod is deleted, or another pod has its name."""
    TAKEN = "taken"
    """Another scheduler bound the pod."""
    REFUSED = "refused"
    """The API server refuses this Binding."""


class ResizeOutcome(enum.Enum):
    """What became of the size that a user wishes for a running pod."""

    RESIZED = "resized"
    """It is written."""
    EXCEEDED = "exceeded"
    """The cards, the namespace or the queue have too little left."""
    REFUSED = "refused"
    """The size of this pod cannot change, the wish cannot be read, or the API server refuses the write."""


class GangOutcome(enum.Enum):
    """How a decision about a gang ended, or its time."""

    BOUND = "bound"
    """As many pods as necessary are bound."""
    REFUSED = "refused"
    """Nodes were reserved, but too few pods could be bound."""
    REJECTED = "rejected"
    """Too few pods have a place."""
    TIMED_OUT = "timed_out"
    """The timeout passed while it waited, or while too few of its pods had nodes."""


class ConsolidationOutcome(enum.Enum):
    """How a plan ended by which pods were moved for one that waited."""

    PLACED = "placed"
    """The pod has a node."""
    GONE = "gone"
    """The pod is deleted, or a pod of higher rank took its cards."""
    REFUSED = "refused"
    """An eviction was not carried out."""
    NOT_BACK = "not_back"
    """A pod that was moved has not got a node again in time."""
    LATE = "late"
    """The pods that were moved have not ended in time."""


class ExpansionOutcome(enum.Enum):
    """How a request for a node ended."""

    ANSWERED = "answered"
    """A node has come."""
    EXPIRED = "expired"
    """No node has come in time."""
    IDLE = "idle"
    """No pod waited for the node any more."""
    REFUSED = "refused"
    """The request was not created."""


class EvictionOutcome(enum.Enum):
    """How the eviction of the victims of a preemption ended."""

    EVICTED = "evicted"
    """Every victim is evicted, or was gone."""
    REFUSED = "refused"
    """The API server refuses a write: by a PodDisruptionBudget, a policy, or a role, or because it is overloaded."""
    UNKNOWN = "unknown"
    """The outcome of a write remains unknown."""
    GONE = "gone"
    """The preemptor is deleted, another pod has its name, or it does not need the node any more."""
    DEPOSED = "deposed"
    """This replica is not trusted as the leader any more."""
