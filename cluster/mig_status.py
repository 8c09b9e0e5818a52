"""MIG in the GpuNodeStatus object: instances, profiles, and the status of the scheduler's instance requests."""

from typing import Self

import msgspec

from allocation.mig import InstanceRequest, MigInstance, MigProfile, Slices


class InstanceStatus(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={
        "slices": "placement",
        "gpu_instance_id": "gpuInstanceID",
        "compute_instance_id": "computeInstanceID",
        "request_id": "wish",
    },
):
    """`instance` of a device that is a MIG instance; the fields are those of `allocation.mig.MigInstance`."""

    parent: str
    profile: str
    slices: Slices | None = None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    request_id: str = ""

    @classmethod
    def of(cls, instance: MigInstance) -> Self:
        """Return `instance` as the object represents it."""
        return msgspec.convert(instance, cls, from_attributes=True)

    def instance(self) -> MigInstance:
        """Return the instance as the ledger represents it."""
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
        """Return `profile` as the object represents it."""
        return msgspec.convert(profile, cls, from_attributes=True)

    def profile(self) -> MigProfile:
        """Return the profile as the ledger represents it."""
        return msgspec.convert(self, MigProfile, from_attributes=True)


class InstanceRequestStatus(msgspec.Struct, frozen=True, omit_defaults=True, rename={"slices": "placement"}):
    """One of `status.migInstances`: a request that the agent has accepted or refused.

    The agent writes it before it creates the instance. After a restart these entries tell it which instances it may
    destroy.

    Attributes:
        message: why the instance does not exist yet, or still exists; empty if nothing is wrong.
        refused: whether the agent will not create the instance.
    """

    id: str
    card: str
    profile: str
    slices: Slices
    message: str = ""
    refused: bool = False

    @property
    def request(self) -> InstanceRequest:
        """The request, as the scheduler wrote it."""
        return InstanceRequest(self.id, self.card, self.profile, self.slices)
