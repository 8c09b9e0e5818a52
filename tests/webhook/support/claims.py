"""GpuClaims as admission finds them, and pods that name them."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from allocation.claim import ClaimDevices, ClaimSpec
from webhook.claims import ReadClaim

CLAIM, DEFAULT_CONTAINER = "gpu.scheduling/claim", "kubectl.kubernetes.io/default-container"
COUNT, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
PERCENT, CORES = "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"
EXCLUSIVE = {COUNT: "1", PERCENT: "100", CORES: "100"}
SPECS = {
    "exclusive": ClaimSpec(ClaimDevices(1)),
    "four": ClaimSpec(ClaimDevices(4)),
    "shared": ClaimSpec(ClaimDevices(1, "Shared", memory_mib=3000, cores=30)),
    "slot": ClaimSpec(ClaimDevices(1, "Shared")),
    "mig": ClaimSpec(ClaimDevices(2, "MIG", profile="1g.10gb")),
    "pool": msgspec.convert(
        {"devices": {"count": 1}, "selector": {"matchLabels": {"pool": "a", "a/b": "c"}}}, ClaimSpec
    ),
}


class Claims:
    """GpuClaims of namespace `team`: those that the local copy has, and those that only the API server has.

    Attributes:
        reads: the claims that were read, by namespace and name.
    """

    def __init__(
        self, cached: Mapping[str, ClaimSpec], stored: Mapping[str, ClaimSpec] | None = None, *, failure: str = ""
    ) -> None:
        self._cached, self._stored, self._failure = cached, stored or {}, failure
        self.reads: list[tuple[str, str]] = []

    def cached(self, namespace: str, name: str) -> ClaimSpec | None:
        """See webhook.claims.ClaimLookup."""
        return self._cached.get(name) if namespace == "team" else None

    async def read(self, namespace: str, name: str) -> ReadClaim:
        """See webhook.claims.ClaimLookup."""
        self.reads.append((namespace, name))
        await asyncio.sleep(0)
        if self._failure:
            return ReadClaim(failure=self._failure)
        return ReadClaim(self._stored.get(name) if namespace == "team" else None)


CLAIMS = Claims(SPECS)


def claims(pod: dict[str, Any], name: str = "exclusive", **annotations: str) -> dict[str, Any]:
    """Return `pod` with the annotation that names a claim."""
    return {**pod, "metadata": {**pod["metadata"], "annotations": {CLAIM: name, **annotations}}}


def container(name: str = "main", **limits: str) -> dict[str, Any]:
    """Return a container with GPU limits by the last part of their names, `gpu` and `gpumem` among them."""
    return {"name": name, "resources": {"limits": {f"nvidia.com/{key}": value for key, value in limits.items()}}}


def limits(pod: dict[str, Any], position: int = 0, *, kind: str = "containers") -> Mapping[str, str]:
    """Return the limits of a container."""
    held: Mapping[str, str] = pod["spec"][kind][position].get("resources", {}).get("limits", {})
    return held
