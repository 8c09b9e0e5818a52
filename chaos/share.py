"""What a pod asks for and what it was given, read from the pod as the API server shows it.

Written from docs/interfaces.md, without the code that the scheduler decides with: a defect there must not be able to
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
    """A pod holds what docs/interfaces.md does not allow it to hold."""


class Use(NamedTuple):
    """Of one card: MiB, millicards, containers."""

    memory_mib: int = 0
    cores: int = 0
    slots: int = 0

    def plus(self, other: "Use") -> "Use":
        """Answer both together."""
        return Use(*(mine + others for mine, others in zip(self, other, strict=True)))

    def minus(self, other: "Use") -> "Use":
        """Answer what is left of it without `other`."""
        return Use(*(mine - others for mine, others in zip(self, other, strict=True)))

    def peak(self, other: "Use") -> "Use":
        """Answer the larger one, in each of the three."""
        return Use(*map(max, self, other))

    def fits(self, room: "Use") -> bool:
        """Whether all three are within `room`."""
        return all(mine <= there for mine, there in zip(self, room, strict=True))


class Ask(NamedTuple):
    """What one container asks for: distinct cards, MiB of each or percent of it or, with neither, all of it."""

    container: str
    cards: int
    memory_mib: int | None
    percentage: int | None
    cores: int

    def of(self, card: Use) -> Use:
        """Answer what it takes of a card that has as much as `card`."""
        if self.memory_mib is not None:
            memory = self.memory_mib
        elif self.percentage is not None:
            memory = -(-card.memory_mib * self.percentage // 100)
        else:
            memory = card.memory_mib
        return Use(memory, self.cores, 1)


class Given(NamedTuple):
    """What a pod's annotation says: the node, and by container the card and share of each of its cards."""

    node: str
    containers: dict[str, list[tuple[str, Use]]]


def asks(pod: dict[str, Any]) -> list[Ask]:
    """Answer what each container asks for that asks for a GPU.

    Raises:
        UnreadableError: a quantity that admission lets nobody ask for.
    """
    return [ask for container, _ in _containers(pod) if (ask := _ask(container)) is not None]


def given(pod: dict[str, Any]) -> Given | None:
    """Answer what it was given, None where no allocation is there.

    Raises:
        UnreadableError: the annotation is not as docs/interfaces.md has it.
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
        return Given(str(content["node"]), containers)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableError(f"its allocation cannot be read: {error!r}: {text}") from None


def uses(pod: dict[str, Any], what: Given) -> dict[str, Use]:
    """Answer what it takes of each card, by UUID, as long as it lives.

    The larger of regular containers and sidecars together and of each init container beside the sidecars before it.
    """
    steady: dict[str, Use] = {}
    peak: dict[str, Use] = {}
    for container, passes in _containers(pod):
        step = dict(steady)
        for uuid, use in what.containers.get(container["name"], ()):
            step[uuid] = step.get(uuid, Use()).plus(use)
        if not passes:
            steady = step
        for uuid, use in step.items():
            peak[uuid] = peak.get(uuid, Use()).peak(use)
    return peak


def _containers(pod: dict[str, Any]) -> Iterator[tuple[dict[str, Any], bool]]:
    """Iterate over containers in the order of their start, each with whether it ends before the next one starts."""
    for container in pod["spec"].get("initContainers", ()):
        yield container, container.get("restartPolicy") != "Always"
    for container in pod["spec"]["containers"]:
        yield container, False


def _ask(container: dict[str, Any]) -> Ask | None:
    resources = container.get("resources", {})
    told = {**resources.get("requests", {}), **resources.get("limits", {})}
    count, memory = _number(told, _COUNT), _number(told, _MEMORY)
    percentage, cores = _number(told, _PERCENTAGE), _number(told, _CORES)
    if count == 0 or (count, memory, percentage, cores) == (None, None, None, None):
        return None
    whole = not memory and percentage in (None, 100)
    millicards = 1000 if cores is None and whole else 10 * (cores or 0)
    return Ask(container["name"], count or 1, memory or None, percentage, millicards)


def _number(told: dict[str, Any], name: str) -> int | None:
    if name not in told:
        return None
    found = _QUANTITY.fullmatch(str(told[name]))
    if found is None:
        raise UnreadableError(f"{name} is {told[name]}")
    return int(found[1]) * _SCALE[found[2]]
