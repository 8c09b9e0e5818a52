"""The annotation `hami.io/vgpu-mig-allocations`: the MIG instances of a pod (docs/hami.md)."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from allocation.allocation import Allocation, CardShare
from allocation.errors import MalformedRecordError
from allocation.inventory import NodeInventory
from allocation.mig import Slices
from allocation.names import HAMI_MIG
from allocation.request import PodRequest

_Position = Annotated[int, msgspec.Meta(ge=0)]


class MigAllocation(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={
        "container_index": "containerIndex",
        "device_index": "deviceIndex",
        "gpu_uuid": "gpuUUID",
        "mig_uuid": "migUUID",
        "gpu_instance_id": "gpuInstanceID",
        "compute_instance_id": "computeInstanceID",
    },
):
    """One instance of one container; the last three attributes are all set or all None.

    Attributes:
        container_index: the container's position in the pod, init containers first.
        device_index: the device's position among those of the container.
        gpu_uuid: the physical card.
        profile: the instance's profile.
        placement: its slices on the card.
        mig_uuid: the instance; added by HAMi's plugin when it has created it.
        gpu_instance_id: NVML's ID.
        compute_instance_id: NVML's ID.
    """

    container_index: _Position
    device_index: _Position
    gpu_uuid: str
    profile: str
    placement: Slices
    mig_uuid: str | None = None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None


_decoder = msgspec.json.Decoder(tuple[MigAllocation, ...])
_encoder = msgspec.json.Encoder()


def encode(entries: Sequence[MigAllocation]) -> str:
    """Return the annotation's value."""
    return _encoder.encode(entries).decode()


def decode(text: str) -> tuple[MigAllocation, ...]:
    """Read the annotation's value.

    Raises:
        MalformedRecordError: it cannot be read, contains a device twice, or identifies an instance only in part.
    """
    try:
        entries = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise MalformedRecordError(f"annotation {HAMI_MIG}: {error}") from None
    seen: set[tuple[int, int]] = set()
    for entry in entries:
        position = (entry.container_index, entry.device_index)
        where = f"annotation {HAMI_MIG}: containerIndex {position[0]}, deviceIndex {position[1]}"
        if position in seen:
            raise MalformedRecordError(f"{where} appears twice")
        seen.add(position)
        identity = (entry.mig_uuid, entry.gpu_instance_id, entry.compute_instance_id)
        if None in identity and identity != (None, None, None):
            raise MalformedRecordError(
                f"{where}: set all of migUUID, gpuInstanceID and computeInstanceID, or none of them"
            )
    return entries


def entries(allocation: Allocation, request: PodRequest, inventory: NodeInventory) -> tuple[MigAllocation, ...]:
    """Return an entry for each MIG instance of `allocation`; `inventory` is that of its node.

    Instances with unknown slices are left out, because the annotation cannot express that.
    """
    instances = {card.uuid: card.instance for card in inventory.cards if card.instance is not None}
    entries: list[MigAllocation] = []
    for position, container in enumerate(request.containers):
        for device, share in enumerate(allocation.containers.get(container.name, ())):
            instance = instances.get(share.uuid)
            if instance is None or instance.slices is None:
                continue
            is_known = instance.gpu_instance_id is not None and instance.compute_instance_id is not None
            entries.append(
                MigAllocation(
                    position,
                    device,
                    instance.parent,
                    instance.profile,
                    instance.slices,
                    share.uuid if is_known else None,
                    instance.gpu_instance_id if is_known else None,
                    instance.compute_instance_id if is_known else None,
                )
            )
    return tuple(entries)


def with_instances(allocation: Allocation, request: PodRequest, entries: Sequence[MigAllocation]) -> Allocation:
    """Return HAMi's allocation with cards replaced by the MIG instances that HAMi's plugin has created on them."""
    created = {
        (entry.container_index, entry.device_index): entry.mig_uuid for entry in entries if entry.mig_uuid is not None
    }
    positions = {container.name: position for position, container in enumerate(request.containers)}
    containers: Mapping[str, tuple[CardShare, ...]] = {
        name: tuple(
            _with_instance(share, created.get((positions.get(name, -1), device))) for device, share in enumerate(shares)
        )
        for name, shares in allocation.containers.items()
    }
    return msgspec.structs.replace(allocation, containers=containers)


def _with_instance(share: CardShare, mig_uuid: str | None) -> CardShare:
    if mig_uuid is None:
        return share
    return msgspec.structs.replace(share, uuid=mig_uuid, parent=share.uuid)
