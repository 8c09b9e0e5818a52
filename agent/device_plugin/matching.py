"""Which container the kubelet asks about, for it names none.

The kubelet admits one pod after another, and lists a pod as soon as it considers it. So at most one of the containers
that it lists and that have an allocation has no devices yet: the one that it asks about. Where that does not hold, the
answer is a refusal. Before a container starts the kubelet asks again, by devices that no other container has: then its
list says whose they are, and they have to be of the cards of the allocation. What was decided by the first rule alone
starts no container.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from agent.device_plugin.devices import cards_of
from agent.refusal import Refusal
from allocation import names
from allocation.errors import AllocationError
from allocation.wire import environment, record


class BoundPod(msgspec.Struct, frozen=True):
    """A pod that is bound to the node and has not finished."""

    namespace: str
    name: str
    annotations: Mapping[str, str]


class Container(NamedTuple):
    """A container of a pod on this node."""

    namespace: str
    pod: str
    name: str

    def __str__(self) -> str:
        return f"container {self.name} of pod {self.namespace}/{self.pod}"


Held = Mapping[Container, Collection[str]]
"""The IDs of the devices of each container that the kubelet lists, in its order; a container may have none."""
Allocated = Mapping[Container, tuple[str, ...]]
"""The UUIDs of the cards of each container that gets them from this plugin, sorted, in the order of its pod."""


def allocated(pods: Iterable[BoundPod], *, node: str) -> Allocated:
    """Return the containers of bound pods that get their cards from the device plugin of `node`."""
    found = {}
    for pod in pods:
        try:
            allocation = record.of_annotations(pod.annotations)
        except AllocationError:
            continue  # its containers are unknown here, and so refused
        if allocation is None or allocation.node != node:
            continue
        for name, shares in allocation.containers.items():
            if shares and environment.is_left_to_device_plugin(pod.annotations, name):
                found[Container(pod.namespace, pod.name, name)] = tuple(sorted(share.uuid for share in shares))
    return found


def admitted(held: Held, allocated: Allocated) -> tuple[str, ...]:
    """Return the cards of the container that the kubelet considers now.

    Raises:
        Refusal: no container waits, or several with different cards do.
    """
    waiting: dict[tuple[str, str], Container] = {}
    for container in allocated:
        if container in held and not held[container]:
            waiting.setdefault((container.namespace, container.pod), container)
    if not waiting:
        raise Refusal(
            "no container on this node waits for cards of an allocation: a pod was not placed by Tranche's scheduler."
            f" Delete it, or let it name the scheduler; bound pods have annotation {names.ALLOCATION}"
        )
    cards = {allocated[container] for container in waiting.values()}
    if len(cards) > 1:
        raise Refusal(
            f"cannot tell which container gets devices: {', '.join(map(str, sorted(waiting.values())))} have none, and"
            " the cards of their allocations differ. Delete those whose containers run already"
        )
    return cards.pop()


def check_admitted(devices: Collection[str], held: Held, allocated: Allocated) -> None:
    """Check the devices that the kubelet has chosen for the container that it considers now.

    Raises:
        Refusal: they are not of the cards of its allocation.
    """
    cards = admitted(held, allocated)
    if cards_of(devices) != cards:
        raise Refusal(f"the kubelet chose devices of {_text(cards_of(devices))}, and the allocation has {_text(cards)}")


def check_starting(devices: Collection[str], held: Held, allocated: Allocated) -> None:
    """Check the devices of a container that is about to start.

    Raises:
        Refusal: the kubelet lists no container with these devices, or its allocation has other cards.
    """
    owner = next((container for container, own in held.items() if {*own} == {*devices}), None)
    if owner is None:
        raise Refusal(f"the kubelet lists no container with the devices {', '.join(sorted(devices))}")
    cards = allocated.get(owner, ())
    if cards_of(devices) != cards:
        raise Refusal(
            f"{owner} has devices of {_text(cards_of(devices))}, and its allocation has {_text(cards)}. Delete the pod"
        )


def _text(cards: Collection[str]) -> str:
    return ", ".join(cards) or "none that this plugin gives it"
