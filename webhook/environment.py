"""Sets a container's environment: each of our variables occurs once, and no user sets a variable that is ours.

Our entries come first, because `$(VARIABLE)` in a user's entry expands only variables that were defined before it.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from allocation import variables
from allocation.isolation import Isolation
from allocation.wire import environment
from webhook.patch import Operation, add, pointer, remove, replace
from webhook.resources import GpuContainer
from webhook.review import EnvironmentEntry, PodContainer


def entries(container: PodContainer, prepared: GpuContainer, isolation: Isolation) -> list[EnvironmentEntry]:
    """Return the entries of a GPU container of a pod with this isolation.

    Do not modify them, because containers share them.

    Each reads an annotation that comes with the Binding, except for constants, whose values are known already. A
    variable of the node's fabric gives no card, so the container's own entry for it is left alone.
    """
    own = {entry.get("name") for entry in container.env or ()} if prepared.fabric else set()
    fabric = tuple(name for name in prepared.fabric if name not in own)
    constants = ({"name": name, "value": value} for name, value in prepared.constants.items())
    return [*_references(container.name, prepared.cards, fabric, isolation), *constants]


@lru_cache(maxsize=1024)
def _references(
    container: str, cards: int, fabric: tuple[str, ...], isolation: Isolation
) -> tuple[EnvironmentEntry, ...]:
    return tuple(
        {
            "name": name,
            "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{key}']"}},
        }
        for name, key in environment.references(container, cards, fabric=fabric, isolation=isolation).items()
    )


def hidden_gpu_entries() -> list[EnvironmentEntry]:
    """Return the entries that hide all GPUs from a container without one, whose image may request them all."""
    return [{"name": environment.NVIDIA_VISIBLE_DEVICES, "value": environment.NO_DEVICES}]


def changes(
    container: PodContainer, *, at: str, cards: int, wanted: Sequence[EnvironmentEntry]
) -> tuple[list[Operation], list[str]]:
    """Return the operations after which each of `wanted` occurs once and no other variable of ours is set.

    A user's entry for one of our variables is replaced in place, or removed where `wanted` does not have its name.

    Args:
        container: the container as it was sent.
        at: the pointer to the container.
        cards: the number of its cards; 0 for a container without GPU.
        wanted: our entries, in order.

    Returns:
        the operations, and a warning of about 100 characters for each replaced or removed entry.
    """
    present = container.env
    if not present:
        return [add(at + pointer("env"), list(wanted))], []
    by_name = {entry["name"]: entry for entry in wanted}
    seen: set[str] = set()
    superfluous: list[int] = []
    operations: list[Operation] = []
    warnings: list[str] = []
    for position, entry in enumerate(present):
        name = str(entry.get("name"))
        if not variables.is_owned(name) and name not in by_name:
            continue
        if name in seen or name not in by_name:
            superfluous.append(position)
        elif entry != by_name[name]:
            operations.append(replace(at + pointer("env", position), by_name[name]))
        if entry != by_name.get(name):
            warnings.append(f"container {container.name}: {_warning(entry, name in by_name, cards)}")
        seen.add(name)
    operations += (remove(at + pointer("env", position)) for position in reversed(superfluous))
    missing = (entry for entry in wanted if entry["name"] not in seen)
    operations += (add(at + pointer("env", position), entry) for position, entry in enumerate(missing))
    return operations, warnings


def _warning(entry: EnvironmentEntry, is_set: bool, cards: int) -> str:  # noqa: FBT001 -- one of two texts
    """Return the warning for a user's entry; where the user chose cards, it names those that the container sees."""
    name, value = str(entry.get("name")), entry.get("value")
    if name in _CARD_CHOICES:
        choice = f"{name}={value[:_MAX_VALUE_CHARACTERS]}" if isinstance(value, str) else name
        if not cards:
            return f"{choice} was dropped: the container asks for no GPU and sees none"
        indexes = "0" if cards == 1 else f"0..{cards - 1}"
        return f"{choice} was dropped: the scheduler chooses the cards, which the container sees as {indexes}"
    if is_set:
        return f"{name} is set by the scheduler, not by the pod"
    return f"{name} was removed: a pod with a GPU may not set it"


_CARD_CHOICES: Final = (environment.NVIDIA_VISIBLE_DEVICES, environment.CUDA_VISIBLE_DEVICES)
_MAX_VALUE_CHARACTERS: Final = 20
"""Characters of a user's value that a warning shows; clients print about 120 characters of a warning."""
