"""Which cards a container gets of its pod's allocation, by what the container runtime knows of both."""

from collections.abc import Iterable, Mapping

import msgspec

from agent.refusal import Refusal
from allocation import isolation, names
from allocation.allocation import CardShare
from allocation.errors import AllocationError
from allocation.isolation import Isolation
from allocation.wire import environment, record


class Delivered(msgspec.Struct, frozen=True):
    """What a container gets from this plugin: its shares of cards, and what enforces their limits."""

    shares: tuple[CardShare, ...]
    isolation: Isolation


def delivered(pod: str, annotations: Mapping[str, str], container: str, variables: Iterable[str]) -> Delivered | None:
    """Return what a container gets; None if it has no cards, or gets them in another way.

    Args:
        pod: namespace and name, for messages.
        annotations: those of the pod when its sandbox was created, after its Binding.
        container: the name of the container.
        variables: its environment, each `NAME=value`.

    Raises:
        Refusal: it asks for cards, and its pod has no allocation of them that can be read.
    """
    is_own = is_delivered(annotations)
    if not is_own and not _lacks_allocation(variables):
        return None
    text = annotations.get(names.ALLOCATION)
    if text is None:
        raise Refusal(
            f"pod {pod}: container {container} asks for a GPU, and the pod has no allocation: it was not placed by"
            f" Tranche's scheduler. Delete the pod; its controller creates another"
        )
    try:
        allocation = record.decode(text)
        chosen = isolation.parse(annotations.get(names.ISOLATION, Isolation.NONE), key=names.ISOLATION)
    except AllocationError as error:
        raise Refusal(f"pod {pod}: its allocation cannot be read: {error}. Delete the pod") from None
    shares = allocation.containers.get(container, ())
    if not shares and _lacks_allocation(variables):
        raise Refusal(
            f"pod {pod}: container {container} asks for a GPU, and the pod's allocation has none for it. Delete the pod"
        )
    return Delivered(shares, chosen) if is_own and shares else None


def is_delivered(annotations: Mapping[str, str]) -> bool:
    """Whether the scheduler bound the pod when its node had this plugin: no other way gives its containers cards."""
    return annotations.get(names.REQUIRED_PLUGINS) == environment.REQUIRED_PLUGINS


def _lacks_allocation(variables: Iterable[str]) -> bool:
    """Whether the references that admission gave the container resolved to nothing."""
    values = dict(entry.partition("=")[::2] for entry in variables)
    return all(values.get(name) == "" for name in environment.ALWAYS_REFERENCED)
