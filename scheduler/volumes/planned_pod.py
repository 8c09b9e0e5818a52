"""A pod of a simulation, with claims that would be created together with it."""

from collections.abc import Iterable, Mapping
from typing import Self

from allocation.claim import ClaimSpec
from scheduler.objects import Pod
from scheduler.volumes.bindings import ClaimKey
from scheduler.volumes.objects import Claim
from scheduler.volumes.sizes import size_of


class PlannedPod(Pod, gc=False):
    """A pod that does not exist yet, with the claims that will exist when it does.

    Attributes:
        claims: these PersistentVolumeClaims; one that exists by the same name counts instead.
        gpu_claims: the same for GpuClaims, by name.
    """

    claims: dict[ClaimKey, Claim] = {}
    gpu_claims: Mapping[str, ClaimSpec] = {}

    @classmethod
    def of(cls, pod: Pod, claims: Iterable[Claim], gpu_claims: Mapping[str, ClaimSpec] = {}) -> Self:
        """Return `pod` with `claims` and `gpu_claims`, which are in its namespace.

        Raises:
            AllocationError: the storage that a claim requests is not a quantity.
        """
        named = {ClaimKey(pod.metadata.namespace, claim.metadata.name): claim for claim in claims}
        for claim in named.values():
            size_of(claim.spec.resources.requests)
        return cls(pod.metadata, pod.spec, pod.status, named, gpu_claims)
