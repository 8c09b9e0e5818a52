"""`hami.io/vgpu-mig-allocations`: which MIG instances a pod has, beside HAMi's allocation string (hami.md 1.2)."""

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
    """One instance of one container; the last three are known together or not at all.

    Attributes:
        container_index: the container's place, init containers first.
        device_index: which of the container's devices it is.
        gpu_uuid: the physical card.
        profile: the instance's profile.
        placement: where it lies on the card.
        mig_uuid: the instance; HAMi's plugin adds it once it has made it.
        gpu_instance_id: NVML's.
        compute_instance_id: NVML's.
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
    """Answer the annotation's value."""
    return _encoder.encode(entries).decode()


def decode(text: str) -> tuple[MigAllocation, ...]:
    """Read the annotation's value.

    Raises:
        MalformedRecordError: it cannot be read, names a device twice, or knows an instance by half.
    """
    try:
        entries = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise MalformedRecordError(f"annotation {HAMI_MIG}: {error}") from None
    seen: set[tuple[int, int]] = set()
    for entry in entries:
        place = (entry.container_index, entry.device_index)
        where = f"annotation {HAMI_MIG}: containerIndex {place[0]}, deviceIndex {place[1]}"
        if place in seen:
            raise MalformedRecordError(f"{where} stands twice")
        seen.add(place)
        made = (entry.mig_uuid, entry.gpu_instance_id, entry.compute_instance_id)
        if None in made and made != (None, None, None):
            raise MalformedRecordError(
                f"{where}: migUUID, gpuInstanceID and computeInstanceID must be all there or none"
            )
    return entries


def entries(allocation: Allocation, request: PodRequest, inventory: NodeInventory) -> tuple[MigAllocation, ...]:
    """Answer the instances of `allocation`, whose cards `inventory` knows.

    An instance of which nobody reported where it lies is left out: the annotation has no word for that.
    """
    instances = {card.uuid: card.instance for card in inventory.cards if card.instance is not None}
    found: list[MigAllocation] = []
    for position, container in enumerate(request.containers):
        for device, share in enumerate(allocation.containers.get(container.name, ())):
            instance = instances.get(share.uuid)
            if instance is None or instance.slices is None:
                continue
            is_known = instance.gpu_instance_id is not None and instance.compute_instance_id is not None
            found.append(
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
    return tuple(found)


def located(allocation: Allocation, request: PodRequest, entries: Sequence[MigAllocation]) -> Allocation:
    """Answer what HAMi gave a pod, with the instance in the place of the card where HAMi's plugin said which it is."""
    made = {
        (entry.container_index, entry.device_index): entry.mig_uuid for entry in entries if entry.mig_uuid is not None
    }
    positions = {container.name: position for position, container in enumerate(request.containers)}
    containers: Mapping[str, tuple[CardShare, ...]] = {
        name: tuple(_located(share, made.get((positions.get(name, -1), device))) for device, share in enumerate(shares))
        for name, shares in allocation.containers.items()
    }
    return msgspec.structs.replace(allocation, containers=containers)


def _located(share: CardShare, mig_uuid: str | None) -> CardShare:
    if mig_uuid is None:
        return share
    return msgspec.structs.replace(share, uuid=mig_uuid, parent=share.uuid)
