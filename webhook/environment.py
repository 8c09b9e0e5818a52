"""A container's environment as admission leaves it: what is ours is there once, and nothing else that is ours to set.

Ours stands in front, because `$(VARIABLE)` in a user's entry expands only what was defined before it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

from allocation import environment
from webhook.patch import Operation, add, pointer, remove, replace
from webhook.review import EnvironmentEntry, PodContainer


def entries(container: str, cards: int, constants: Mapping[str, str]) -> list[EnvironmentEntry]:
    """Answer the entries of a container with `cards` cards; those of a reference are shared, and nobody's to change.

    Each reads an annotation that comes with the Binding, but for `constants`, which are known already.
    """
    return [*_references(container, cards), *({"name": name, "value": value} for name, value in constants.items())]


@lru_cache(maxsize=1024)
def _references(container: str, cards: int) -> tuple[EnvironmentEntry, ...]:
    return tuple(
        {
            "name": name,
            "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{key}']"}},
        }
        for name, key in environment.references(container, cards).items()
    )


def blind_entries() -> list[EnvironmentEntry]:
    """Answer the entries of a container without GPU in a managed pod: its image may ask for all of them."""
    return [{"name": environment.NVIDIA_VISIBLE_DEVICES, "value": environment.NO_DEVICES}]


def operations(
    container: PodContainer, *, at: str, wanted: Sequence[EnvironmentEntry], warn: Callable[[str], None]
) -> Iterator[Operation]:
    """Answer what makes `wanted` stand once, and nothing else that is ours to set; nothing if it is so already.

    A user's entry is replaced where it stands, or removed where none of ours has its name; `warn` is told.

    Args:
        container: as it was sent.
        at: the pointer to it.
        wanted: the entries, in order.
        warn: called with a text of about 100 characters per entry of the user's that goes.
    """
    present = container.env
    if not present:
        yield add(at + pointer("env"), list(wanted))
        return
    by_name = {entry["name"]: entry for entry in wanted}
    seen: set[str] = set()
    surplus: list[int] = []
    for position, entry in enumerate(present):
        name = str(entry.get("name"))
        if not environment.is_owned(name) and name not in by_name:
            continue
        if name in seen or name not in by_name:
            surplus.append(position)
        elif entry != by_name[name]:
            yield replace(at + pointer("env", position), by_name[name])
        if entry != by_name.get(name):
            warn(f"container {container.name}: {name} is set by the scheduler, not by the pod")
        seen.add(name)
    for position in reversed(surplus):
        yield remove(at + pointer("env", position))
    missing = [entry for entry in wanted if entry["name"] not in seen]
    for position, entry in enumerate(missing):
        yield add(at + pointer("env", position), entry)
