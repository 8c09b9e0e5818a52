"""What is to be placed: a pod with what constrains it, and one container of it."""

import msgspec

from allocation.bindings.bound_cards import BoundCards
from allocation.constraints import CardKind, Constraints
from allocation.isolation import Isolation
from allocation.placement.stranding import Stranding
from allocation.quota import UNLIMITED, Headroom
from allocation.request import ContainerRequest, PodRequest


class ContainerQuery(msgspec.Struct, frozen=True):
    """What decides whether a card fits one container, as far as the pod's constraints do not (`ConstraintMasks`).

    Attributes:
        request: the container's request.
        idle_only: whether only cards without any container fit.
        headroom: what the namespace's quotas leave to this container.
        card_kind: whether undivided cards fit, or MIG instances, or both.
        isolation: what enforces the limits of its pod, which may share no card with pods of another isolation.
    """

    request: ContainerRequest
    idle_only: bool = False
    headroom: Headroom = UNLIMITED
    card_kind: CardKind = "any"
    isolation: str = Isolation.NONE


class PlacementQuery(msgspec.Struct, frozen=True):
    """What decides where a pod fits.

    Attributes:
        request: the pod's request.
        constraints: which cards and nodes it accepts, and in which order.
        headroom: what its namespace's quotas leave.
        bound: the cards that are bound to its application, which decide what it gets of each; None if it has none.
        stranding: what it costs the pods that come after it; None if that does not decide.
    """

    request: PodRequest
    constraints: Constraints
    headroom: Headroom = UNLIMITED
    bound: BoundCards | None = None
    stranding: Stranding | None = None

    def for_container(self, container: ContainerRequest, headroom: Headroom | None = None) -> ContainerQuery:
        """Return the query for one container; `headroom` is what earlier containers of the pod leave of the pod's."""
        left, constraints = self.headroom if headroom is None else headroom, self.constraints
        return ContainerQuery(
            container, constraints.idle_only, left, constraints.card_kind, isolation=self.request.isolation
        )
