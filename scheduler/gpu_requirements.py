"""The GPU requirements of a pod: its resources, its annotations, its GpuClaim, and its static allocation."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from allocation import claim, names
from allocation.allocation import Allocation
from allocation.claim import ClaimRequest, ClaimSpec, FindClaim
from allocation.constraints import CardKind, Constraints, read_constraints
from allocation.errors import AllocationError
from allocation.limits import excess_of_gpu_containers
from allocation.pod import Containers
from allocation.request import PodRequest, read_request
from allocation.settings import AllocationSettings
from allocation.wire import record

_CARD_KINDS: Mapping[str, CardKind] = {"Exclusive": "card", "Shared": "card", "MIG": "instance"}


class PodSpec(Containers, Protocol):
    """The spec of a pod, as far as its GPU requirements are concerned."""

    @property
    def node_selector(self) -> Mapping[str, str]:
        """The labels that the pod's node must have."""


class MissingClaimError(AllocationError):
    """The GpuClaim of a pod does not exist: the pod waits for it."""


class GpuRequirements(msgspec.Struct, frozen=True):
    """The GPU requirements of a pod.

    Attributes:
        request: the amounts that are placed: those of its containers, or with a claim those of the claim.
        constraints: the constraints on cards and nodes, from its annotations and its claim.
        fixed: its static allocation, which admission accepts from trusted identities only.
        own: the amounts of its own containers; the same as `request` without a claim.
        claim: what it requests by its claim; None without a claim.
    """

    request: PodRequest
    constraints: Constraints
    fixed: Allocation | None
    own: PodRequest
    claim: ClaimRequest | None = None

    def __bool__(self) -> bool:
        """Whether the pod needs a card."""
        return bool(self.request) or self.fixed is not None

    def allocation(self, placed: Allocation) -> Allocation:
        """Return the allocation of the pod's own containers, for what was `placed` for `request`."""
        if self.claim is None or self.fixed is not None:
            return placed
        return self.claim.spread(placed, self.own)

    @property
    def is_divided(self) -> bool:
        """Whether several containers share what a claim gives of a card: limits of each alone cannot express that."""
        claimed = self.claim
        return claimed is not None and claimed.mark.exclusivity == "Shared" and len(self.own.gpu_containers) > 1


def read(
    spec: PodSpec, annotations: Mapping[str, str], settings: AllocationSettings, *, find_claim: FindClaim
) -> GpuRequirements:
    """Return the GPU requirements of a pod.

    Raises:
        MissingClaimError: its claim does not exist.
        AllocationError: a resource or an annotation is malformed or exceeds a limit, or contradicts the claim.
    """
    own = read_request(spec, settings)
    if excess := excess_of_gpu_containers(len(own.gpu_containers)):
        raise AllocationError(excess)
    constraints, fixed = read_constraints(annotations, settings), record.of_annotations(annotations)
    name = annotations.get(names.CLAIM)
    if name is None:
        return GpuRequirements(own, constraints, fixed, own)
    found = find_claim(name)
    if found is None:
        raise MissingClaimError(f"GpuClaim {name} does not exist")
    claimed = claim.read_request(spec, own, name, found, settings)
    _check_selector(spec, name, found)
    if fixed is not None and fixed.claim != claimed.mark:
        raise AllocationError(f"annotation {names.ALLOCATION} is not for GpuClaim {name}: remove it, or the claim")
    constraints = msgspec.structs.replace(
        constraints, card_kind=_CARD_KINDS[claimed.mark.exclusivity], profile=claimed.profile
    )
    return GpuRequirements(claimed.placed, constraints, fixed, own, claimed)


def _check_selector(spec: PodSpec, name: str, found: ClaimSpec) -> None:
    """Check that admission wrote the claim's selector into the pod, where every filter of nodes reads it."""
    missing = found.node_labels.items() - spec.node_selector.items()
    if missing:
        labels = ", ".join(f"{key}={value}" for key, value in sorted(missing))
        raise AllocationError(
            f"GpuClaim {name}: admission did not prepare it: spec.nodeSelector lacks {labels}; create the pod again"
        )
