"""A pod's request and its allocation, read from the pod as the API server shows it.

This is written from docs/interfaces.md and shares no code with the scheduler, so that a bug in the scheduler cannot
hide itself here.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

ALLOCATION = "gpu.scheduling/allocation"
SCHEDULER = "tranche"
_COUNT, _MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
_PERCENTAGE, _CORES = "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"
_QUANTITY = re.compile(r"(\d+)([kMG]?)\Z")
_SCALE = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}


class UnreadableError(Exception):
    """A pod has a value that docs/interfaces.md does not allow."""


class Use(NamedTuple):
    """Resources of one card: memory in MiB, compute in millicards, slots (one per container)."""

    memory_mib: int = 0
    cores: int = 0
    slots: int = 0

    def plus(self, other: "Use") -> "Use":
        """Return the sum."""
        return Use(*(mine + others for mine, others in zip(self, other, strict=True)))

    def minus(self, other: "Use") -> "Use":
        """Return the difference."""
        return Use(*(mine - others for mine, others in zip(self, other, strict=True)))

    def peak(self, other: "Use") -> "Use":
        """Return the maximum of each resource."""
        return Use(*map(max, self, other))

    def fits(self, capacity: "Use") -> bool:
        """Return whether no resource exceeds `capacity`."""
        return all(mine <= limit for mine, limit in zip(self, capacity, strict=True))


class Request(NamedTuple):
    """The GPU request of one container: distinct cards, and of each MiB, a percentage or, with neither, all memory."""

    container: str
    cards: int
    memory_mib: int | None
    percentage: int | None
    cores: int

    def on(self, card: Use) -> Use:
        """Return what it takes of a card with the capacity `card`."""
        if self.memory_mib is not None:
            memory = self.memory_mib
        elif self.percentage is not None:
            memory = -(-card.memory_mib * self.percentage // 100)
        else:
            memory = card.memory_mib
        return Use(memory, self.cores, 1)


class Mark(NamedTuple):
    """The GpuClaim that an allocation is for, and how it has its cards: `Exclusive`, `Shared` or `MIG`."""

    claim: str
    exclusivity: str


class Allocation(NamedTuple):
    """A pod's allocation annotation: the node, for each container the UUIDs and shares of its cards, and its claim."""

    node: str
    containers: dict[str, list[tuple[str, Use]]]
    mark: Mark | None


def requests(pod: dict[str, Any]) -> list[Request]:
    """Return the requests of the containers that request a GPU.

    Raises:
        UnreadableError: admission rejects a quantity of the pod.
    """
    return [request for container, _ in _containers(pod) if (request := _request(container)) is not None]


def allocation(pod: dict[str, Any]) -> Allocation | None:
    """Return the allocation, or None if the pod has none.

    Raises:
        UnreadableError: the annotation does not have the format of docs/interfaces.md.
    """
    text = pod["metadata"].get("annotations", {}).get(ALLOCATION)
    if text is None:
        return None
    try:
        content = json.loads(text)
        if content["v"] != 1:
            raise UnreadableError(f"its allocation has version {content['v']}")
        containers = {
            name: [(share["uuid"], Use(int(share["memoryMiB"]), int(share["cores"]), 1)) for share in shares]
            for name, shares in content["containers"].items()
        }
        claim = content.get("claim")
        mark = Mark(str(claim["name"]), str(claim["exclusivity"])) if claim is not None else None
        return Allocation(str(content["node"]), containers, mark)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableError(f"its allocation cannot be read: {error!r}: {text}") from None


def uses(pod: dict[str, Any], allocated: Allocation) -> dict[str, Use]:
    """Return what the pod takes of each card while it exists, by UUID.

    This is the maximum of two sums: all regular containers and sidecars, and each init container with the sidecars
    that start before it. The containers of a claim have the same cards, and all of them together take each card once.
    """
    if allocated.mark is not None:
        return {uuid: use for shares in allocated.containers.values() for uuid, use in shares}
    steady: dict[str, Use] = {}
    peak: dict[str, Use] = {}
    for container, ends_first in _containers(pod):
        step = dict(steady)
        for uuid, use in allocated.containers.get(container["name"], ()):
            step[uuid] = step.get(uuid, Use()).plus(use)
        if not ends_first:
            steady = step
        for uuid, use in step.items():
            peak[uuid] = peak.get(uuid, Use()).peak(use)
    return peak


def _containers(pod: dict[str, Any]) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield the containers in the order in which they start, each with whether it ends before the next one starts."""
    for container in pod["spec"].get("initContainers", ()):
        yield container, container.get("restartPolicy") != "Always"
    for container in pod["spec"]["containers"]:
        yield container, False


def _request(container: dict[str, Any]) -> Request | None:
    resources = container.get("resources", {})
    amounts = {**resources.get("requests", {}), **resources.get("limits", {})}
    count, memory = _number(amounts, _COUNT), _number(amounts, _MEMORY)
    percentage, cores = _number(amounts, _PERCENTAGE), _number(amounts, _CORES)
    if count == 0 or (count, memory, percentage, cores) == (None, None, None, None):
        return None
    whole = not memory and percentage in (None, 100)
    millicards = 1000 if cores is None and whole else 10 * (cores or 0)
    return Request(container["name"], count or 1, memory or None, percentage, millicards)


def _number(amounts: dict[str, Any], name: str) -> int | None:
    if name not in amounts:
        return None
    match = _QUANTITY.fullmatch(str(amounts[name]))
    if match is None:
        raise UnreadableError(f"{name} is {amounts[name]}")
    return int(match[1]) * _SCALE[match[2]]
