"""What containers get of a claim: devices of the node's own CDI specification, and the limits in one of ours.

The claim's file has a CDI device for each of its requests, with the environment of a container that names the request.
It replaces variables of the same name in the container. The device nodes and libraries of a card are in the
specification that NVIDIA's software writes on the node.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from agent.dra.claim import Result
from agent.refusal import Refusal
from allocation import names, quantity
from allocation.allocation import CardShare
from allocation.errors import AllocationError
from allocation.inventory import Card
from allocation.request import MILLI_PER_PERCENT
from allocation.wire import environment

KIND: Final = f"{names.DRA_DRIVER}/claim"
_VERSION: Final = "0.5.0"
"""The first version of CDI whose device names may begin with a digit, as UIDs do."""
_MIB: Final = 2**20
_LONGEST_TEXT: Final = 63


class PreparedDevice(msgspec.Struct, frozen=True):
    """A device of a claim, as the kubelet is to know it.

    Attributes:
        request: the name of its request.
        device: its name in the slice.
        cdi_names: the CDI devices that a container with the request gets for it.
        share_id: the allocation's own.
    """

    request: str
    device: str
    cdi_names: tuple[str, ...]
    share_id: str | None


def prepare(
    uid: str, results: Sequence[Result], cards: Mapping[str, Card]
) -> tuple[dict[str, Any], tuple[PreparedDevice, ...]]:
    """Return the CDI specification of a claim, and its devices.

    Args:
        uid: the claim's.
        results: the devices of the node that are allocated to it.
        cards: the cards of the node by the names of their devices.

    Raises:
        Refusal: the node does not have one of these cards, or an amount cannot be read.
    """
    shares: dict[str, list[CardShare]] = {}
    prepared = []
    for result in results:
        card = cards.get(result.device)
        if card is None:
            raise Refusal(
                f"the node has no card {result.device[:_LONGEST_TEXT]} that pods can use, though the claim has it:"
                " delete the pod and its claim"
            )
        of_request = shares.setdefault(result.base_request, [])
        own = () if of_request else (f"{KIND}={_device_name(uid, result.base_request)}",)
        of_request.append(_share(result, card))
        cdi_names = (environment.host_name(card.uuid), *own)
        prepared.append(PreparedDevice(result.base_request, result.device, cdi_names, result.share_id))
    specification = {
        "cdiVersion": _VERSION,
        "kind": KIND,
        "devices": [
            {"name": _device_name(uid, request), "containerEdits": {"env": _environment(of_request)}}
            for request, of_request in shares.items()
        ],
    }
    return specification, tuple(prepared)


def _share(result: Result, card: Card) -> CardShare:
    """Return the part of a card that a claim has; without amounts it is the whole card."""
    try:
        memory = result.consumed_capacity.get("memory")
        cores = result.consumed_capacity.get("cores")
        return CardShare(
            card.uuid,
            card.index,
            card.memory_mib if memory is None else int(quantity.parse(memory) // _MIB),
            0 if cores is None else int(quantity.parse(cores) * MILLI_PER_PERCENT),
        )
    except AllocationError as error:
        raise Refusal(
            f"the claim has an amount of {result.device[:_LONGEST_TEXT]} that cannot be read: {error}"
        ) from error


def _environment(shares: Sequence[CardShare]) -> list[str]:
    return [f"{name}={value}" for name, value in environment.values(shares, "nri").items()]


def _device_name(uid: str, request: str) -> str:
    return f"{uid}-{request}"
