"""Finds the smallest existing PersistentVolume for an unbound claim on a node, as kube-scheduler does."""

from collections import defaultdict
from collections.abc import Collection, Container, Iterable

from allocation.label_selector import accepts, label_selector
from scheduler.objects import Node
from scheduler.volumes.bindings import ClaimKey
from scheduler.volumes.compiled_volume import CompiledVolume
from scheduler.volumes.label_index import Bucket, LabelIndex
from scheduler.volumes.objects import Claim
from scheduler.volumes.sizes import size_of


class VolumeIndex:
    """The volumes of each class that a claim may still get, by the node labels that they need."""

    def __init__(self) -> None:
        self._available: defaultdict[str, LabelIndex[CompiledVolume]] = defaultdict(LabelIndex)
        self._reserved: defaultdict[ClaimKey, dict[str, CompiledVolume]] = defaultdict(dict)

    def add(self, volume: CompiledVolume) -> None:
        """Add a volume that is available or reserved for a claim."""
        source = volume.source
        if volume.claim is not None:
            self._reserved[volume.claim][volume.name] = volume
        elif source.status.phase == "Available":
            self._available[source.storage_class].add(volume.name, volume, _labels(volume))

    def remove(self, volume: CompiledVolume) -> None:
        """Remove a volume, because it changed, does not exist any more, or is assumed for a claim."""
        if volume.claim is not None:
            reserved = self._reserved[volume.claim]
            reserved.pop(volume.name, None)
            if not reserved:
                del self._reserved[volume.claim]
        self._available[volume.source.storage_class].remove(volume.name, _labels(volume))

    def available(self, storage_class: str) -> LabelIndex[CompiledVolume]:
        """Return the volumes of a class that no claim has."""
        return self._available[storage_class]

    def reserved(self, claim: ClaimKey) -> Iterable[CompiledVolume]:
        """Return the volumes whose `claimRef` names a claim."""
        return self._reserved.get(claim, {}).values()


class ClaimMatcher:
    """Finds volumes for one claim; compares each volume with the claim once, however many nodes there are."""

    def __init__(
        self, key: ClaimKey, claim: Claim, index: VolumeIndex, *, reserved: Collection[CompiledVolume]
    ) -> None:
        """Match the volumes of `index`, and `reserved`, which are reserved for this claim."""
        spec = claim.spec
        self.key = key
        self.size = size_of(spec.resources.requests)
        self._claim = claim
        self._selector = label_selector(spec.selector)
        self._available = index.available(claim.storage_class)
        self._reserved = sorted(
            (each for each in reserved if each.source.storage_class == claim.storage_class and self._fits(each)),
            key=lambda each: each.name,
        )
        self._sorted: dict[Bucket, list[CompiledVolume]] = {}

    def find(self, node: Node, taken: Container[str]) -> CompiledVolume | None:
        """Return the volume that the claim would get on `node`, other than those `taken`, or None.

        A volume that is reserved for the claim comes before all others, even if the node cannot use it.
        """
        labels = node.metadata.labels
        for each in self._reserved:
            if each.name not in taken:
                return each if _is_usable(each, node) else None
        best: CompiledVolume | None = None
        for bucket in self._available.buckets(labels):
            for each in self._candidates(bucket):
                if best is not None and (best.size, best.name) <= (each.size, each.name):
                    break
                if each.name not in taken and _is_usable(each, node):
                    best = each
                    break
        return best

    def _candidates(self, bucket: Bucket) -> list[CompiledVolume]:
        """Return the volumes of a bucket that the claim may get, smallest first."""
        found = self._sorted.get(bucket)
        if found is None:
            suitable = (each for each in self._available.items(bucket) if self._accepts(each))
            found = self._sorted[bucket] = sorted(suitable, key=lambda each: (each.size, each.name))
        return found

    def _fits(self, volume: CompiledVolume) -> bool:
        mine, spec, meta = self._claim.spec, volume.source.spec, volume.source.metadata
        return (
            volume.size >= self.size
            and spec.volume_mode == mine.volume_mode
            and (spec.volume_attributes_class_name or "") == (mine.volume_attributes_class_name or "")
            and meta.deletion_timestamp is None
        )

    def _accepts(self, volume: CompiledVolume) -> bool:
        source = volume.source
        return (
            self._fits(volume)
            and (self._selector is None or accepts(self._selector, source.metadata.labels))
            and self._claim.spec.access_modes <= frozenset(source.spec.access_modes)
        )


def by_size(matchers: Iterable[ClaimMatcher]) -> list[ClaimMatcher]:
    """Return the claims in the order in which they choose volumes: the smallest request gets the smallest volume."""
    return sorted(matchers, key=lambda each: each.size)


def _labels(volume: CompiledVolume) -> frozenset[tuple[str, str]] | None:
    return volume.affinity.labels if volume.affinity is not None else None


def _is_usable(volume: CompiledVolume, node: Node) -> bool:
    # kube-scheduler does not translate in-tree volumes here, whatever the node has migrated.
    return volume.affinity is None or volume.affinity.matches(node.metadata.labels, ())
