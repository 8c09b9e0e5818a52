"""The devices that the kubelet counts: as many of each card as there are containers that may share it.

A device's ID begins with the UUID of its card, so that the kubelet's list of resources, and what reads it, say which
card a container has.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from agent.device_plugin.messages_pb2 import Device
from agent.refusal import Refusal
from allocation.inventory import Card

_SEPARATOR: Final = "::"
_HEALTHY, _UNHEALTHY = "Healthy", "Unhealthy"


def devices_of(cards: Iterable[Card]) -> tuple[Device, ...]:
    """Return the devices of all cards that a container can have; of a card in MIG mode these are its instances."""
    return tuple(
        Device(ID=f"{card.uuid}{_SEPARATOR}{slot}", health=_HEALTHY if card.healthy else _UNHEALTHY)
        for card in cards
        if not card.is_mig_enabled
        for slot in range(card.slots)
    )


def cards_of(devices: Iterable[str]) -> tuple[str, ...]:
    """Return the UUID of the card of each device, in the order of the UUIDs."""
    return tuple(sorted(device.rpartition(_SEPARATOR)[0] for device in devices))


def choose(cards: Sequence[str], available: Iterable[str], *, required: Sequence[str], count: int) -> tuple[str, ...]:
    """Return a device of each of the `cards`, the `required` ones among them.

    Args:
        cards: the UUIDs of a container's cards.
        available: the IDs of the devices that the kubelet may give it, the required ones included.
        required: the IDs of those that it must have.
        count: how many devices it requests.

    Raises:
        Refusal: no choice has exactly these cards.
    """
    if count != len(cards):
        raise Refusal(f"the container requests {count} devices, and its allocation has {len(cards)} cards")
    missing = Counter(cards) - Counter(cards_of(required))
    if missing.total() != count - len(required):
        raise Refusal(f"the kubelet insists on devices of {', '.join(cards_of(required))}, not of its allocation")
    free = {cards_of((device,))[0]: device for device in sorted(available, reverse=True) if device not in required}
    if lacking := sorted(missing.keys() - free.keys()):
        raise Refusal(f"the kubelet has no device left of its card {', '.join(lacking)}")
    return (*required, *(free[card] for card in missing))
