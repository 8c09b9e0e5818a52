"""A pod of a simulation, with claims that would be created together with it."""

from collections.abc import Iterable
from typing import Self

from scheduler.objects import Pod
from scheduler.volumes.bindings import ClaimKey
from scheduler.volumes.objects import Claim
from scheduler.volumes.sizes import size_of


class PlannedPod(Pod, gc=False):
    """A pod that does not exist yet, with the claims that will exist when it does.

    Attributes:
        claims: these claims; one that exists by the same name counts instead.
    """

    claims: dict[ClaimKey, Claim] = {}

    @classmethod
    def of(cls, pod: Pod, claims: Iterable[Claim]) -> Self:
        """Return `pod` with `claims`, which are in its namespace.

        Raises:
            AllocationError: the storage that a claim requests is not a quantity.
        """
        named = {ClaimKey(pod.metadata.namespace, claim.metadata.name): claim for claim in claims}
        for claim in named.values():
            size_of(claim.spec.resources.requests)
        return cls(pod.metadata, pod.spec, pod.status, named)
