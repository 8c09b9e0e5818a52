"""Reads the manifest of a GpuClaim that does not exist yet, by the rules of its definition.

The definition is manifests/base/crds/gpuclaims.yaml; fields that Tranche does not read are not checked here.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from allocation.claim import ClaimDevices
from cluster.gpu_claim import GpuClaim
from cluster.manifest import UnreadableManifestError, without_nulls

MOST_CARDS: Final = 128
MOST_CORES: Final = 100
"""Percent of a card."""


def read_gpu_claim(manifest: dict[str, Any]) -> GpuClaim:
    """Return the claim as it would be created; its namespace is empty if the manifest names none.

    Raises:
        UnreadableManifestError: a field has an invalid value.
    """
    try:
        # As JSON, because scalars of a file may remember how they were written, and admission writes some into the pod.
        claim = msgspec.json.decode(json.dumps(without_nulls(manifest)), type=GpuClaim)
    except (msgspec.ValidationError, TypeError) as error:
        raise UnreadableManifestError(f"a GpuClaim cannot be read: {error}") from None
    if not claim.metadata.name:
        raise UnreadableManifestError("a GpuClaim has no metadata.name")
    for problem in _problems(claim.spec.devices):
        raise UnreadableManifestError(f"GpuClaim {claim.metadata.name}: spec.devices.{problem}")
    return claim


def _problems(devices: ClaimDevices) -> Iterator[str]:
    if not 1 <= devices.count <= MOST_CARDS:
        yield f"count holds {devices.count}; write a number of cards from 1 to {MOST_CARDS}"
    if devices.memory_mib is not None:
        if devices.memory_mib < 1:
            yield f"memoryMiB holds {devices.memory_mib}; write a number above 0, or leave it out"
        if devices.exclusivity == "Exclusive":
            yield "memoryMiB is for exclusivity Shared and MIG, because an exclusive card is given whole; leave it out"
    if devices.cores is not None:
        if not 1 <= devices.cores <= MOST_CORES:
            yield f"cores holds {devices.cores}; write a percentage from 1 to {MOST_CORES}, or leave it out"
        if devices.exclusivity != "Shared":
            yield f"cores is for exclusivity Shared, and exclusivity holds {devices.exclusivity}; leave it out"
    if devices.profile and devices.exclusivity != "MIG":
        yield f"profile is for exclusivity MIG, and exclusivity holds {devices.exclusivity}; leave it out"
