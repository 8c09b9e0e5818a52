"""Cards that claims of other DRA drivers have: the UUID of a device says which card it is."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from cluster.dra import ResourceClaim, ResourceSlice


def claims_by_card(slices: Iterable[ResourceSlice], claims: Iterable[ResourceClaim]) -> Mapping[str, tuple[str, ...]]:
    """Return the claims that have a card, as `namespace/name`, by its UUID; of a pool the latest generation counts."""
    generations: dict[tuple[str, str, str], int] = {}
    uuids: dict[tuple[str, str, str], str] = {}
    for each in slices:
        spec = each.spec
        for device in spec.devices:
            key = (spec.driver, spec.pool.name, device.name)
            if spec.pool.generation >= generations.get(key, 0):
                generations[key], uuids[key] = spec.pool.generation, device.uuid
    found: defaultdict[str, set[str]] = defaultdict(set)
    for claim in claims:
        for allocated in claim.devices:
            if uuid := uuids.get((allocated.driver, allocated.pool, allocated.device)):
                found[uuid].add(f"{claim.metadata.namespace}/{claim.metadata.name}")
    return {uuid: tuple(sorted(names)) for uuid, names in found.items()}
