"""Storage objects as the API server shows them, passed on to the volume cache and to the queue where that may help."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from scheduler.volumes.objects import (
    Claim,
    CsiDriver,
    CsiNode,
    PersistentVolume,
    StorageCapacity,
    StorageClass,
    VolumeAttachment,
)
from scheduler.volumes.provisioning import is_less
from scheduler.volumes.volume_cache import VolumeCache

T = TypeVar("T", Claim, PersistentVolume, StorageClass, CsiNode, CsiDriver, StorageCapacity, VolumeAttachment)


class Storage:
    """The handlers of the seven kinds of storage objects."""

    def __init__(
        self, volumes: VolumeCache, *, on_change: Callable[[], None], on_improvement: Callable[[], None]
    ) -> None:
        """Update `volumes`; `on_change` is called after each change, `on_improvement` if it may help waiting pods."""
        self._volumes = volumes
        self._on_change = on_change
        self._on_improvement = on_improvement

    def set_claim(self, claim: Claim, old: Claim | None = None) -> None:
        """Set the state of a claim."""
        self._set(claim, old, self._volumes.set_claim)

    def drop_claim(self, claim: Claim) -> None:
        """Forget a claim; that helps no pod."""
        self._volumes.drop_claim(claim)
        self._on_change()

    def set_volume(self, volume: PersistentVolume, old: PersistentVolume | None = None) -> None:
        """Set the state of a PersistentVolume."""
        self._set(volume, old, self._volumes.set_volume)

    def drop_volume(self, volume: PersistentVolume) -> None:
        """Forget a PersistentVolume; that helps no pod."""
        self._volumes.drop_volume(volume)
        self._on_change()

    def set_class(self, storage_class: StorageClass, old: StorageClass | None = None) -> None:
        """Set the state of a StorageClass."""
        self._set(storage_class, old, self._volumes.set_class)

    def drop_class(self, storage_class: StorageClass) -> None:
        """Forget a StorageClass; that helps no pod."""
        self._volumes.drop_class(storage_class)
        self._on_change()

    def set_csi_node(self, csi_node: CsiNode, old: CsiNode | None = None) -> None:
        """Set the state of a CSINode."""
        self._set(csi_node, old, self._volumes.set_csi_node)

    def drop_csi_node(self, csi_node: CsiNode) -> None:
        """Forget a CSINode, and with it the limits of its node."""
        self._volumes.drop_csi_node(csi_node)
        self._improve()

    def set_driver(self, driver: CsiDriver, old: CsiDriver | None = None) -> None:
        """Set the state of a CSIDriver."""
        self._set(driver, old, self._volumes.set_driver)

    def drop_driver(self, driver: CsiDriver) -> None:
        """Forget a CSIDriver, and with it that its capacity is limited."""
        self._volumes.drop_driver(driver)
        self._improve()

    def set_capacity(self, capacity: StorageCapacity, old: StorageCapacity | None = None) -> None:
        """Set the state of a CSIStorageCapacity; less of it, as after each volume that is provisioned, helps no pod."""
        if old is None or not _is_alike(capacity, old):
            self._volumes.set_capacity(capacity)
            if old is None or not is_less(capacity, old):
                self._on_improvement()
            self._on_change()

    def drop_capacity(self, capacity: StorageCapacity) -> None:
        """Forget a CSIStorageCapacity; that helps no pod."""
        self._volumes.drop_capacity(capacity)
        self._on_change()

    def set_attachment(self, attachment: VolumeAttachment, old: VolumeAttachment | None = None) -> None:
        """Set the state of a VolumeAttachment; one more helps no pod."""
        if old is None or attachment.spec != old.spec:
            self._volumes.set_attachment(attachment)
            self._on_change()

    def drop_attachment(self, attachment: VolumeAttachment) -> None:
        """Forget a VolumeAttachment, so that its node can attach another volume."""
        self._volumes.drop_attachment(attachment)
        self._improve()

    def _set(self, item: T, old: T | None, apply: Callable[[T], None]) -> None:
        if old is None or not _is_alike(item, old):
            apply(item)
            self._improve()

    def _improve(self) -> None:
        self._on_change()
        self._on_improvement()


def _is_alike(item: T, old: T) -> bool:
    """Whether nothing changed that scheduling depends on."""
    version = item.metadata.resource_version
    return (
        msgspec.structs.replace(old, metadata=msgspec.structs.replace(old.metadata, resource_version=version)) == item
    )
