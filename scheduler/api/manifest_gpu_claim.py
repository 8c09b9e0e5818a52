"""Reads the manifest of a GpuClaim that does not exist yet, by the rules of its definition.

The definition is manifests/base/crds/gpuclaims.yaml; fields that Tranche does not read are not checked here.
"""

import json
import re
from collections.abc import Collection, Hashable, Iterator
from typing import Any, Final

import msgspec

from allocation.claim import ClaimDevices, ClaimNetwork, ClaimSpec
from cluster.gpu_claim import GpuClaim
from cluster.manifest import UnreadableManifestError, without_nulls

MOST_CARDS: Final = 128
MOST_CORES: Final = 100
"""Percent of a card."""
HIGHEST_ID: Final = 1023
HIGHEST_BANDWIDTH: Final = 1_000_000
HIGHEST_TIER: Final = 3
MOST_PORTS: Final = 64
MOST_HCAS: Final = 16
MOST_HCA_CHARACTERS: Final = 63
MOST_GROUP_CHARACTERS: Final = 253
HCA: Final = "^[A-Za-z0-9_.-]+$"
GROUP: Final = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"


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
    for problem in _problems(claim.spec):
        raise UnreadableManifestError(f"GpuClaim {claim.metadata.name}: spec.{problem}")
    return claim


def _problems(spec: ClaimSpec) -> Iterator[str]:
    for of_devices in (_amounts(spec.devices), _cards(spec.devices)):
        yield from (f"devices.{problem}" for problem in of_devices)
    if spec.devices.exclusivity == "MIG" and spec.topology.mode == "Required":
        yield "topology.mode holds Required, and MIG instances cannot reach each other; leave it out"
    bandwidth = spec.topology.min_bandwidth_gbps
    if not 0 <= bandwidth <= HIGHEST_BANDWIDTH:
        yield f"topology.minBandwidthGBps holds {bandwidth}; write GB/s in one direction, from 0 to {HIGHEST_BANDWIDTH}"
    if spec.topology.max_tier is not None and not 0 <= spec.topology.max_tier <= HIGHEST_TIER:
        yield f"topology.maxTier holds {spec.topology.max_tier}; write a tier from 0 to {HIGHEST_TIER}, or leave it out"
    yield from (f"network.{problem}" for problem in _network(spec.network))
    if spec.gang_ref and not (len(spec.gang_ref) <= MOST_GROUP_CHARACTERS and re.fullmatch(GROUP, spec.gang_ref)):
        yield f"gangRef holds {spec.gang_ref!r}; write the name of a group, of lower-case letters, digits, '-' and '.'"


def _amounts(devices: ClaimDevices) -> Iterator[str]:
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


def _cards(devices: ClaimDevices) -> Iterator[str]:
    ids = devices.prefer_ids
    if len(ids) > MOST_CARDS or _has_twice(ids) or not all(0 <= each <= HIGHEST_ID for each in ids):
        yield f"preferIds must be at most {MOST_CARDS} indexes of cards from 0 to {HIGHEST_ID}, each once"
    if devices.policy == "preferIds" and not ids:
        yield "preferIds is empty; write the indexes of the cards that policy preferIds prefers"
    if devices.policy != "contiguous" and devices.exclusivity == "MIG":
        yield f"policy holds {devices.policy}, and MIG instances are chosen by profile and memory; leave it out"


def _network(network: ClaimNetwork) -> Iterator[str]:
    if not 0 <= network.min_ports <= MOST_PORTS:
        yield f"minPorts holds {network.min_ports}; write a number of ports from 0 to {MOST_PORTS}"
    hcas = network.preferred_hcas
    is_named = all(len(hca) <= MOST_HCA_CHARACTERS and re.fullmatch(HCA, hca) for hca in hcas)
    if len(hcas) > MOST_HCAS or _has_twice(hcas) or not is_named:
        yield f"preferredHcas must be at most {MOST_HCAS} names of adapters such as mlx5_0, each once"


def _has_twice(values: Collection[Hashable]) -> bool:
    return len(set(values)) < len(values)
