"""The storage objects as the API server shows them, with the indexes by which scheduling looks them up."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from scheduler.volumes import in_tree, limits
from scheduler.volumes.bindings import ClaimKey
from scheduler.volumes.compiled_volume import CompiledVolume
from scheduler.volumes.in_tree import Attachment
from scheduler.volumes.objects import (
    MIGRATED_PLUGINS,
    Claim,
    CsiDriver,
    CsiNode,
    PersistentVolume,
    StorageCapacity,
    StorageClass,
)


class CsiFacts(msgspec.Struct, frozen=True):
    """What a CSINode says: the limits of drivers that have one, and the in-tree plugins that the node has migrated."""

    limits: Mapping[str, int] = {}
    migrated: frozenset[str] = frozenset()


_NO_FACTS = CsiFacts()


class StorageObjects:
    """The objects of all kinds but VolumeAttachments.

    Attributes:
        claims: the claims.
        volumes: the PersistentVolumes by name.
        classes: the StorageClasses by name.
        limited_drivers: the CSI drivers that have a limit on a node, and on how many.
    """

    def __init__(self) -> None:
        self.claims: dict[ClaimKey, Claim] = {}
        self.volumes: dict[str, CompiledVolume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.limited_drivers: Counter[str] = Counter()
        self._claims_of: defaultdict[str, set[ClaimKey]] = defaultdict(set)
        self._handles: Counter[Attachment] = Counter()
        self._csi_nodes: dict[str, CsiFacts] = {}
        self._drivers: dict[str, CsiDriver] = {}
        self._capacities: defaultdict[str, dict[ClaimKey, StorageCapacity]] = defaultdict(dict)

    def set_claim(self, key: ClaimKey, claim: Claim | None) -> None:
        """Set the state of a claim, or forget it."""
        old = self.claims.pop(key, None)
        if old is not None and old.spec.volume_name:
            claims = self._claims_of[old.spec.volume_name]
            claims.discard(key)
            if not claims:
                del self._claims_of[old.spec.volume_name]
        if claim is not None:
            self.claims[key] = claim
            if claim.spec.volume_name:
                self._claims_of[claim.spec.volume_name].add(key)

    def set_volume(self, name: str, volume: PersistentVolume | None) -> CompiledVolume | None:
        """Set the state of a PersistentVolume and return it compiled, or forget it."""
        old = self.volumes.pop(name, None)
        if old is not None and old.attachment is not None:
            self._handles[old.attachment] -= 1
            if not self._handles[old.attachment]:
                del self._handles[old.attachment]
        if volume is None:
            return None
        compiled = self.volumes[name] = CompiledVolume.of(volume)
        if compiled.attachment is not None:
            self._handles[compiled.attachment] += 1
        return compiled

    def set_csi_node(self, name: str, csi_node: CsiNode | None) -> None:
        """Set the state of a CSINode, or forget it."""
        self.limited_drivers.subtract(self.csi_facts(name).limits.keys())
        self._csi_nodes.pop(name, None)
        if csi_node is not None:
            plugins = csi_node.metadata.annotations.get(MIGRATED_PLUGINS, "").split(",")
            facts = CsiFacts(limits.of_node(csi_node), frozenset(plugins) - {""})
            self.limited_drivers.update(facts.limits.keys())
            if facts != _NO_FACTS:
                self._csi_nodes[name] = facts
        self.limited_drivers += Counter()  # drops zeros

    def set_driver(self, name: str, driver: CsiDriver | None) -> None:
        """Set the state of a CSIDriver, or forget it."""
        if driver is None:
            self._drivers.pop(name, None)
        else:
            self._drivers[name] = driver

    def set_capacity(self, capacity: StorageCapacity) -> None:
        """Set the state of a CSIStorageCapacity, whose class cannot change."""
        key = ClaimKey(capacity.metadata.namespace, capacity.metadata.name)
        self._capacities[capacity.storage_class_name][key] = capacity

    def drop_capacity(self, capacity: StorageCapacity) -> None:
        """Forget a CSIStorageCapacity."""
        key = ClaimKey(capacity.metadata.namespace, capacity.metadata.name)
        self._capacities[capacity.storage_class_name].pop(key, None)

    def claims_of(self, volume: str) -> Iterable[ClaimKey]:
        """Return the claims that name a PersistentVolume."""
        return self._claims_of.get(volume, ())

    def csi_facts(self, node: str) -> CsiFacts:
        """Return what the CSINode of a node says; nothing where it does not exist."""
        return self._csi_nodes.get(node, _NO_FACTS)

    def capacities(self, storage_class: StorageClass) -> Iterable[StorageCapacity] | None:
        """Return the capacities of a class, or None if its driver does not report any."""
        driver = self._drivers.get(storage_class.provisioner)
        if driver is None or not driver.spec.storage_capacity:
            return None
        return self._capacities.get(storage_class.metadata.name, {}).values()

    def is_delayed(self, claim: Claim) -> bool:
        """Whether the claim is bound together with the node of its first pod."""
        storage_class = self.classes.get(claim.storage_class)
        return storage_class is not None and storage_class.volume_binding_mode == "WaitForFirstConsumer"

    def attachment(self, key: ClaimKey, claim: Claim | None) -> Attachment | None:
        """Return what a CSI driver attaches for a claim, or None if that is not known.

        An unbound claim stands for a volume of its own, of the driver that its class names.
        """
        if claim is None:
            return None
        volume = self.volumes.get(claim.spec.volume_name)
        if volume is not None:
            return volume.attachment
        storage_class = self.classes.get(claim.storage_class)
        driver, plugin = in_tree.driver_of(storage_class.provisioner) if storage_class is not None else ("", "")
        return Attachment(driver, f"unbound claim {key}", plugin) if driver else None

    def is_shared(self, attachment: Attachment) -> bool:
        """Whether several PersistentVolumes have one handle."""
        return self._handles[attachment] > 1

    def csi_handle(self, volume: str) -> str:
        """Return the handle of a PersistentVolume of a CSI driver, or an empty string."""
        found = self.volumes.get(volume)
        return found.source.spec.csi.volume_handle if found is not None and found.source.spec.csi is not None else ""
