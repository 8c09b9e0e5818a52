"""Which cards the bindings grant a pod: one grant per card, the same whatever the order of the bindings.

The most specific binding of a card decides, then the newest (docs/gpubindings.md#differences-from-the-fork).
"""

from collections.abc import Iterable, Mapping

import msgspec

from allocation.bindings.binding import Binding
from allocation.bindings.identity import AppIdentity
from allocation.errors import AllocationError
from allocation.label_selector import accepts, label_selector


class Grant(msgspec.Struct, frozen=True):
    """A card that a pod may use.

    Attributes:
        card: its UUID.
        memory_mib: of the card, in MiB; None if the binding sets none.
        binding: the name of the binding.
    """

    card: str
    memory_mib: int | None
    binding: str


def of_pod(
    bindings: Iterable[Binding], identity: AppIdentity, labels: Mapping[str, str], *, require_namespace: bool = False
) -> tuple[Grant, ...]:
    """Return the grants of a pod of an application, by card; a binding whose memory cannot be read grants nothing."""
    by_card: dict[str, Grant] = {}
    matching = [
        each
        for each in bindings
        if identity.has(each.spec, require_namespace=require_namespace)
        and accepts(label_selector(each.spec.pod_selector), labels)
    ]
    for each in in_precedence(matching):
        grant = _grant(each)
        if grant is not None:
            by_card.setdefault(grant.card, grant)
    return tuple(by_card[card] for card in sorted(by_card))


def in_precedence(bindings: Iterable[Binding]) -> list[Binding]:
    """Return bindings in the order in which they decide: the more specific first, then the newer, then by name."""
    ordered = sorted(bindings, key=lambda each: each.name)
    ordered.sort(key=lambda each: each.created, reverse=True)
    ordered.sort(key=lambda each: (bool(each.spec.owner), bool(each.spec.namespace)), reverse=True)
    return ordered


def _grant(binding: Binding) -> Grant | None:
    try:
        return Grant(binding.spec.card, binding.spec.memory_mib(), binding.name)
    except AllocationError:
        return None
