"""MIG in the GpuNodeStatus object: instances, profiles, and what became of the scheduler's wishes."""

from typing import Self

import msgspec

from allocation.mig import MigInstance, MigProfile, Slices, Wish


class InstanceStatus(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={
        "slices": "placement",
        "gpu_instance_id": "gpuInstanceID",
        "compute_instance_id": "computeInstanceID",
    },
):
    """`instance` of a device that is a MIG instance; the fields are those of `allocation.mig.MigInstance`."""

    parent: str
    profile: str
    slices: Slices | None = None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    wish: str = ""

    @classmethod
    def of(cls, instance: MigInstance) -> Self:
        """Answer what the object says of `instance`."""
        return msgspec.convert(instance, cls, from_attributes=True)

    def instance(self) -> MigInstance:
        """Answer what the object says."""
        return msgspec.convert(self, MigInstance, from_attributes=True)


class ProfileStatus(msgspec.Struct, frozen=True, rename={"memory_mib": "memoryMiB", "slice_count": "sliceCount"}):
    """One of `migProfiles` of a device in MIG mode; the fields are those of `allocation.mig.MigProfile`."""

    name: str
    memory_mib: int
    cores: int
    slice_count: int
    placements: tuple[Slices, ...] = ()

    @classmethod
    def of(cls, profile: MigProfile) -> Self:
        """Answer what the object says of `profile`."""
        return msgspec.convert(profile, cls, from_attributes=True)

    def profile(self) -> MigProfile:
        """Answer what the object says."""
        return msgspec.convert(self, MigProfile, from_attributes=True)


class WishStatus(msgspec.Struct, frozen=True, omit_defaults=True, rename={"slices": "placement"}):
    """One of `status.migInstances`: a wish that the agent has accepted, written before it makes the instance.

    After a restart it tells which instances are the agent's to destroy. A wish that is refused has nothing made for it.

    Attributes:
        message: why the instance is not there yet, or not gone yet; empty where nothing is wrong.
        refused: whether nothing will be made for it.
    """

    id: str
    card: str
    profile: str
    slices: Slices
    message: str = ""
    refused: bool = False

    @property
    def wish(self) -> Wish:
        """Answer the wish."""
        return Wish(self.id, self.card, self.profile, self.slices)
