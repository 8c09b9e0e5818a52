"""What pods have of the cards of a cluster, read from their manifests alone: nothing here is the product's."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

Object = dict[str, Any]
ALLOCATION = "gpu.scheduling/allocation"
RESIZED = "gpu.scheduling/resized"
TFLOPS = 312
"""Of each card, which is an A100."""


class Held(NamedTuple):
    """What a container has of one card: MiB, thousandths of its cores, thousandths of its TFLOPs."""

    container: str
    card: str
    memory_mib: int
    cores: int
    tflops: int


class Size(NamedTuple):
    """What a card has: MiB, and for how many containers it is."""

    memory_mib: int
    slots: int


class Books:
    """The pods of a cluster that have a node."""

    def __init__(self, cards: Mapping[str, Size]) -> None:
        """Know the cards by UUID."""
        self._cards = cards

    def problems(self, pods: list[Object]) -> list[str]:
        """Return what is wrong: too much memory, too many cores or containers, pods on a card that do not share it."""
        memory, cores, slots, tflops = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
        users: defaultdict[str, set[str]] = defaultdict(set)
        isolations: defaultdict[str, set[str]] = defaultdict(set)
        alone: dict[str, str] = {}
        for pod in pods:
            name = pod["metadata"]["name"]
            seen: set[tuple[str, str]] = set()
            claim = claim_of(pod)
            for each in held(pod):
                key = (name, each.card)
                users[each.card].add(name)
                isolations[each.card].add(isolation_of(pod))
                if claim and key in seen:  # the containers of a claim share its cards
                    continue
                seen.add(key)
                memory[each.card] += each.memory_mib
                cores[each.card] += each.cores
                tflops[each.card] += each.tflops
                slots[each.card] += 1
            if claim.get("exclusivity", "Exclusive" if claim else "") in ("Exclusive", "MIG"):
                alone |= {each.card: name for each in held(pod)}
        both = {card: users[card] for card, name in alone.items() if users[card] != {name}}
        return [
            *(f"{card} has {amount} MiB" for card, amount in memory.items() if amount > self._cards[card].memory_mib),
            *(f"{card} has {amount} cores" for card, amount in cores.items() if amount > 1000),
            *(f"{card} has {amount} TFLOPs" for card, amount in tflops.items() if amount > TFLOPS * 1000),
            *(f"{card} has {amount} containers" for card, amount in slots.items() if amount > self._cards[card].slots),
            *(f"{card} has isolations {each}" for card, each in isolations.items() if len(each) > 1),
            *(f"{card} is exclusive, and has {names}" for card, names in both.items()),
        ]


def held(pod: Object) -> list[Held]:
    """Return what a pod with a node has, or may still have from before it was resized, if that is more."""
    annotations = pod["metadata"].get("annotations", {})
    containers = json.loads(annotations[ALLOCATION])["containers"] if ALLOCATION in annotations else {}
    before = json.loads(annotations[RESIZED])["from"] if RESIZED in annotations else {}
    return [
        _held(container, share, max(share["memoryMiB"], memory), max(share["cores"], cores))
        for container, shares in containers.items()
        for share, (memory, cores) in zip(shares, before.get(container, [(0, 0)] * len(shares)), strict=True)
    ]


def _held(container: str, share: Object, memory: int, cores: int) -> Held:
    return Held(container, share["uuid"], memory, cores, share.get("tflops", cores * TFLOPS))


def claim_of(pod: Object) -> Object:
    """Return the claim as the allocation of a pod has it; empty without one."""
    text = pod["metadata"].get("annotations", {}).get(ALLOCATION)
    found: Object = (json.loads(text).get("claim") or {}) if text else {}
    return found


def isolation_of(pod: Object) -> str:
    """Return the isolation as the allocation of a pod has it."""
    text = pod["metadata"].get("annotations", {}).get(ALLOCATION)
    isolation: str = json.loads(text).get("isolation", "none") if text else "none"
    return isolation


def cards_of(pod: Object) -> set[str]:
    """Return the cards of a pod."""
    return {each.card for each in held(pod)}


def memory_of(pod: Object) -> int:
    """Return the MiB of a pod on all its cards; the containers of a claim share them."""
    once = {(each.card if claim_of(pod) else (each.container, each.card)): each.memory_mib for each in held(pod)}
    return sum(once.values())


def stated(pod: Object) -> int:
    """Return the MiB that the container of a pod states, as admission left it; 0 if none."""
    (container,) = pod["spec"]["containers"]
    return int(container["resources"]["limits"].get("nvidia.com/gpumem", 0))


def unlimited(pod: Object) -> list[Held]:
    """Return the shares for which no memory is counted: nothing limits their containers."""
    return [each for each in held(pod) if not each.memory_mib]


def with_cards(pods: list[Object]) -> dict[str, Object]:
    """Return by UID the pods that have cards."""
    return {pod["metadata"]["uid"]: pod for pod in pods if held(pod)}


def leased(pods: list[Object]) -> dict[str, str]:
    """Return the UID of the pod that has a card alone, by the claim that its allocation names."""
    return {
        each.card: pod["metadata"]["uid"]
        for pod in pods
        if claim_of(pod).get("exclusivity") in ("Exclusive", "MIG")
        for each in held(pod)
    }
