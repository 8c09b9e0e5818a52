"""The GpuClaims of all namespaces."""

from allocation.claim import ClaimSpec
from cluster.gpu_claim import GpuClaim

ClaimName = tuple[str, str]
"""Namespace and name."""


class Claims:
    """The specs of the claims by namespace and name."""

    def __init__(self) -> None:
        self._specs: dict[ClaimName, ClaimSpec] = {}

    def find(self, namespace: str, name: str) -> ClaimSpec | None:
        """Return the spec of a claim, or None if it does not exist."""
        return self._specs.get((namespace, name))

    def set(self, claim: GpuClaim) -> bool:
        """Set a claim; return whether it is new."""
        key = (claim.metadata.namespace, claim.metadata.name)
        is_new = self._specs.get(key) != claim.spec
        self._specs[key] = claim.spec
        return is_new

    def drop(self, claim: GpuClaim) -> None:
        """Forget a deleted claim."""
        self._specs.pop((claim.metadata.namespace, claim.metadata.name), None)
