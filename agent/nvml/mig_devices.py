"""Cards in MIG mode as devices of a report: the card itself, followed by each of its instances."""

from typing import Final

import msgspec

from agent.nvml.mig_reading import InstanceReading, MigReading
from agent.report import DeviceReport
from allocation.inventory import Card
from allocation.mig import MODE, Creator, MigInstance
from allocation.request import WHOLE_CARD

_SHARES_MEMORY: Final = "it shares the memory of its GPU instance with other compute instances"
_NO_PROFILES: Final = "the card is in MIG mode, but its profiles and instances could not be read"


def mig_devices(device: DeviceReport, mig: MigReading | None, *, by: Creator) -> tuple[DeviceReport, ...]:
    """Return the devices of a card in MIG mode; `device` describes the card without regard to MIG.

    The slots of the card are the largest number of instances that it can have, as in HAMi's register annotation
    (rules 1.1 of tests/conformance). A card whose `mig` reading is None is unhealthy.
    """
    if mig is None:
        card = msgspec.structs.replace(device.card, mode=MODE, healthy=False, instances_by=by)
        return (msgspec.structs.replace(device, card=card, message=device.message or _NO_PROFILES),)
    card = msgspec.structs.replace(
        device.card,
        mode=MODE,
        slots=max((len(profile.placements) for profile in mig.profiles), default=1),
        mig_profiles=mig.profiles,
        instances_by=by,
    )
    whole = msgspec.structs.replace(device, card=card)
    return (whole, *(_instance(whole, reading, mig) for reading in mig.instances))


def _instance(whole: DeviceReport, reading: InstanceReading, mig: MigReading) -> DeviceReport:
    profile = next((each for each in mig.profiles if each.name == reading.profile), None)
    most = max((each.slice_count for each in mig.profiles), default=reading.slice_count)
    message = whole.message or ("" if reading.is_alone else _SHARES_MEMORY)
    card = Card(
        uuid=reading.uuid,
        index=whole.card.index,
        memory_mib=reading.memory_mib,
        cores=profile.cores if profile is not None else reading.slice_count * WHOLE_CARD // max(most, 1),
        slots=1,
        model=f"{whole.card.model} MIG {reading.profile}",
        numa=whole.card.numa,
        mode=MODE,
        healthy=not message,
        instance=MigInstance(
            whole.card.uuid,
            reading.profile,
            reading.slices,
            reading.gpu_instance_id,
            reading.compute_instance_id,
        ),
    )
    return DeviceReport(card, message=message)
