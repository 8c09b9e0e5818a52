"""Cards in MIG mode as devices of a report: the card, and each of its instances as a unit of its own."""

from typing import Final

import msgspec

from agent.mig_reading import InstanceReading, MigReading
from agent.report import DeviceReport
from allocation.inventory import Card
from allocation.mig import MODE, Creator, MigInstance
from allocation.request import WHOLE_CARD

_SHARES_MEMORY: Final = "it shares the memory of its GPU instance with other compute instances"
_NO_PROFILES: Final = "the card is in MIG mode and could not be asked for its profiles and instances"


def divide(device: DeviceReport, mig: MigReading | None, *, by: Creator) -> tuple[DeviceReport, ...]:
    """Answer the devices that a card in MIG mode is reported as; `device` is the card as if it were not.

    Its slots are the most instances that it can have, as in HAMi's register annotation (hami.md 1.1).
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
    return (whole, *(_unit(whole, reading, mig) for reading in mig.instances))


def _unit(whole: DeviceReport, reading: InstanceReading, mig: MigReading) -> DeviceReport:
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
