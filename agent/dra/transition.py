"""Which allocator a node has, the ledger or DRA, and what its agent does next to change it.

A node belongs to one of the two at any time. To DRA: the ledger takes no more pods (`draining`), the scheduler's leader
confirms that none is left, the status becomes `dra`, and then the slice is published. Back: the devices are closed by a
taint, the claims that have them end, the slice is withdrawn, the plugin prepares nothing more, and with still no claim
the status becomes `ledger`. Each step is taken by what the API server says at that moment, so an agent that restarts
goes on where the last one was.
"""

from typing import Literal

import msgspec

from agent.dra.resource_slice import Presence
from cluster.gpu_node_status import Allocator

Wanted = Literal["ledger", "dra"]


class Facts(msgspec.Struct, frozen=True):
    """What is so at this moment.

    Attributes:
        wanted: the allocator that the node should have.
        is_confirmed: whether the present leader has confirmed this drain: no pod with an allocation is left.
        has_pods: whether a pod with an allocation of ours runs on the node.
        slice: whether the node has a slice, and whether pods may get its devices.
        is_settled: whether the slice has been like this for long enough that kube-scheduler has seen it.
        has_claims: whether a claim has a device of the node.
        serves: whether the plugin prepares claims.
    """

    wanted: Wanted
    is_confirmed: bool = False
    has_pods: bool = False
    slice: Presence = "absent"
    is_settled: bool = True
    has_claims: bool = False
    serves: bool = False


class Step(msgspec.Struct, frozen=True):
    """What is to be so next.

    Attributes:
        allocator: what the node's status is to say.
        slice: the slice that the node is to have.
        serves: whether the plugin is to prepare claims.
    """

    allocator: Allocator
    slice: Presence
    serves: bool


def next_step(allocator: Allocator, facts: Facts) -> Step:
    """Return the next step of a node whose status says `allocator`."""
    if allocator == "dra":
        return Step("dra", "open", serves=True) if facts.wanted == "dra" else _back(facts)
    if allocator == "ledger":
        return Step("ledger" if facts.wanted == "ledger" else "draining", "absent", serves=False)
    # A slice that another process left behind is withdrawn, and before the ledger returns its claims have to end.
    if facts.wanted == "ledger":
        is_clear = facts.slice == "absent" and facts.is_settled and not facts.has_claims
        return Step("ledger" if is_clear else "draining", "absent", serves=False)
    may_serve = facts.is_confirmed and facts.slice == "absent" and not facts.has_pods
    return Step("dra" if may_serve else "draining", "absent", serves=may_serve)


def _back(facts: Facts) -> Step:
    """Return the next step of a node that DRA has, and that is to go back to the ledger."""
    if facts.slice == "open":
        return Step("dra", "closed", serves=True)
    if facts.has_claims or not facts.is_settled:
        return Step("dra", facts.slice, serves=True)
    if facts.slice == "closed":
        return Step("dra", "absent", serves=True)
    # The claims were listed while the plugin prepared some; the list after the last one counts.
    return Step("dra" if facts.serves else "ledger", "absent", serves=False)
