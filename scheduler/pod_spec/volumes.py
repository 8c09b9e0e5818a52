"""The volumes of a pod, as far as they restrict its nodes."""

from collections.abc import Iterator

import msgspec


class Present(msgspec.Struct, gc=False):
    """An object of which only the presence matters."""


class ClaimSource(msgspec.Struct, rename="camel", gc=False):
    """The PersistentVolumeClaim that a volume refers to."""

    claim_name: str = ""


class GcePersistentDisk(msgspec.Struct, rename="camel", gc=False):
    """A disk of Google Compute Engine."""

    pd_name: str = ""
    read_only: bool = False


class AwsElasticBlockStore(msgspec.Struct, gc=False):
    """A volume of AWS Elastic Block Store."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class AzureDisk(msgspec.Struct, rename="camel", gc=False):
    """A disk of Azure, which is Shared, Dedicated or Managed."""

    disk_uri: str = msgspec.field(default="", name="diskURI")
    kind: str = "Shared"


class CinderVolume(msgspec.Struct, gc=False):
    """A volume of OpenStack Cinder."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class IscsiVolume(msgspec.Struct, rename="camel", gc=False):
    """An iSCSI disk."""

    iqn: str = ""
    read_only: bool = False


class RbdVolume(msgspec.Struct, rename="camel", gc=False):
    """An image of a Ceph RADOS block device."""

    monitors: tuple[str, ...] = ()
    pool: str = "rbd"
    image: str = ""
    read_only: bool = False


class PortworxVolume(msgspec.Struct, gc=False):
    """A volume of Portworx, by its ID."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class Volume(msgspec.Struct, rename="camel", gc=False):
    """A volume, with the sources that restrict its pod's nodes; every node can mount the others."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: Present | None = None
    gce_persistent_disk: GcePersistentDisk | None = None
    aws_elastic_block_store: AwsElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    cinder: CinderVolume | None = None
    iscsi: IscsiVolume | None = None
    rbd: RbdVolume | None = None
    portworx_volume: PortworxVolume | None = None

    @property
    def sources(self) -> Iterator[msgspec.Struct]:
        """The sources that have fields."""
        clouds = (self.gce_persistent_disk, self.aws_elastic_block_store, self.azure_disk, self.cinder)
        yield from filter(None, (self.persistent_volume_claim, self.iscsi, self.rbd, self.portworx_volume, *clouds))

    @property
    def restricts_nodes(self) -> bool:
        """Whether some nodes cannot mount it, or a node can attach only a limited number of its kind."""
        return self != Volume(self.name)
