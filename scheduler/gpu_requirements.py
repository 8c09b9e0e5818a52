"""The GPU requirements of a pod: its resources, its annotations, its GpuClaim, and its static allocation."""

from collections.abc import Mapping
from typing import Protocol, Self

import msgspec

from allocation import burst, claim, claim_demands, names
from allocation.allocation import Allocation
from allocation.bindings.bound_cards import BoundCards
from allocation.claim import ClaimRequest, ClaimSpec, FindClaim
from allocation.constraints import CardKind, Constraints, read_constraints, read_isolation
from allocation.errors import AllocationError
from allocation.isolation import Isolation
from allocation.limits import excess_of_gpu_containers
from allocation.pod import Containers
from allocation.reasons import PodReason
from allocation.request import PodRequest, read_request
from allocation.settings import AllocationSettings
from allocation.wire import record

_CARD_KINDS: Mapping[str, CardKind] = {"Exclusive": "card", "Shared": "card", "MIG": "instance"}


class PodSpec(Containers, Protocol):
    """The spec of a pod, as far as its GPU requirements are concerned."""

    @property
    def node_selector(self) -> Mapping[str, str]:
        """The labels that the pod's node must have."""


class WaitingPodError(AllocationError):
    """A pod waits for another object, whatever the nodes are.

    Attributes:
        reason: the code of what it waits for.
    """

    def __init__(self, reason: PodReason, why: str) -> None:
        """Describe what the pod waits for, and the remedy."""
        self.reason = reason
        super().__init__(why)


class GpuRequirements(msgspec.Struct, frozen=True):
    """The GPU requirements of a pod.

    Attributes:
        request: the amounts that are placed: those of its containers, or with a claim those of the claim.
        constraints: the constraints on cards and nodes, from its annotations and its claim; what the claim says of
            connections takes the place of what annotations say.
        fixed: its static allocation, which admission accepts from trusted identities only.
        own: the amounts of its own containers; the same as `request` without a claim.
        claim: what it requests by its claim; None without a claim.
        bound: the cards that are bound to its application; None if it may have others.
        is_gathering: whether it gets a node only together with others of its gang.
    """

    request: PodRequest
    constraints: Constraints
    fixed: Allocation | None
    own: PodRequest
    claim: ClaimRequest | None = None
    bound: BoundCards | None = None
    is_gathering: bool = False

    def __bool__(self) -> bool:
        """Whether the pod needs a card."""
        return bool(self.request) or self.fixed is not None

    def allocation(self, placed: Allocation) -> Allocation:
        """Return the allocation of the pod's own containers, for what was `placed` for `request`."""
        if self.claim is None or self.fixed is not None:
            return placed
        return self.claim.spread(placed, self.own)

    def on(self, bound: BoundCards) -> Self:
        """Return the requirements of the same pod on the cards that are `bound` to its application, and on no others.

        The pod's own list of cards does not count, so that it cannot choose those of another application.

        Raises:
            AllocationError: several containers would share what is bound to the application as a whole.
        """
        if self.claim is not None:
            bound = msgspec.structs.replace(bound, policy="single")  # the claim says how many cards the pod gets
        elif bound.policy == "all" and len(self.own.gpu_containers) > 1:
            containers = ", ".join(each.name for each in self.own.gpu_containers)
            raise AllocationError(
                f"label {names.CONSUME_POLICY}: policy all gives all cards bound to {bound.identity} to one container,"
                f" and {containers} request GPUs: let one container request them, or write single"
            )
        cards = frozenset(card.uuid for card in bound.cards)
        return msgspec.structs.replace(
            self, constraints=msgspec.structs.replace(self.constraints, use_uuids=cards), bound=bound
        )

    @property
    def is_divided(self) -> bool:
        """Whether several containers share what a claim gives of a card: limits of each alone cannot express that."""
        claimed = self.claim
        return claimed is not None and claimed.mark.exclusivity == "Shared" and len(self.own.gpu_containers) > 1


def read(
    spec: PodSpec,
    annotations: Mapping[str, str],
    settings: AllocationSettings,
    *,
    find_claim: FindClaim,
    is_bound: bool = False,
) -> GpuRequirements:
    """Return the GPU requirements of a pod; `is_bound` says whether GPUBindings decide about its cards.

    Raises:
        WaitingPodError: its claim does not exist.
        AllocationError: a resource or an annotation is malformed or exceeds a limit, or contradicts the claim.
    """
    isolated_by = read_isolation(annotations)
    own = _isolated(read_request(spec, settings), isolated_by)
    if excess := excess_of_gpu_containers(len(own.gpu_containers)):
        raise AllocationError(excess)
    constraints = read_constraints(annotations, settings).isolated_by(isolated_by)
    fixed = record.of_annotations(annotations)
    name = annotations.get(names.CLAIM)
    if because := _why_no_limits(name, is_bound=is_bound, isolated_by=isolated_by):
        burst.refuse_if_set(annotations, because=because)
    if name is None:
        if fixed is None:
            own = burst.limited(own, annotations, settings)
        if own.is_bursting:  # an instance limits its container itself
            constraints = msgspec.structs.replace(constraints, card_kind="card")
        return GpuRequirements(own, constraints, fixed, own)
    found = find_claim(name)
    if found is None:
        raise WaitingPodError(
            PodReason.GpuClaimNotFound, f"GpuClaim {name} does not exist: create it in the pod's namespace"
        )
    claimed = claim.read_request(spec, own, name, found, settings, is_bound=is_bound)
    claim_demands.check_isolation(found, name, isolated_by, containers=len(own.gpu_containers))
    _check_selector(spec, name, found)
    if fixed is not None and fixed.claim is None:  # admission would have marked it
        raise AllocationError(f"annotation {names.ALLOCATION} is not for GpuClaim {name}: remove it, or the claim")
    constraints = msgspec.structs.replace(
        constraints,
        card_kind=_CARD_KINDS[claimed.mark.exclusivity],
        profile=claimed.devices.profile,
        topology=claim_demands.topology(found, settings),
        fabric=claim_demands.fabric(found),
    )
    return GpuRequirements(_isolated(claimed.placed, isolated_by), constraints, fixed, own, claimed)


def _isolated(request: PodRequest, isolated_by: Isolation) -> PodRequest:
    if isolated_by is Isolation.NONE:
        return request
    return msgspec.structs.replace(request, isolation=isolated_by)


def _why_no_limits(claim_name: str | None, *, is_bound: bool, isolated_by: Isolation) -> str:
    """Return what decides about the limits of a pod in place of its annotation; empty if the annotation does."""
    if claim_name is not None:
        return f"GpuClaim {claim_name} says what the pod has of each card"
    if is_bound:
        return "GPUBindings say what the pod's application has of each card"
    return "isolation mig asks for MIG instances, whose size is fixed" if isolated_by is Isolation.MIG else ""


def _check_selector(spec: PodSpec, name: str, found: ClaimSpec) -> None:
    """Check that admission wrote the claim's selector into the pod, where every filter of nodes reads it."""
    missing = found.node_labels.items() - spec.node_selector.items()
    if missing:
        labels = ", ".join(f"{key}={value}" for key, value in sorted(missing))
        raise AllocationError(
            f"GpuClaim {name}: admission did not prepare it: spec.nodeSelector lacks {labels}; create the pod again"
        )
