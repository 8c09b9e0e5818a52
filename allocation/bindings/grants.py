"""Which cards the bindings grant a pod, one grant per card whatever the order of the bindings, and why one does not.

The most specific binding of a card decides, then the newest (docs/gpubindings.md#differences-from-the-fork).
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from allocation import quantity
from allocation.bindings.binding import AppIdentity, Binding, BindingSpec
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


def mismatches(
    spec: BindingSpec, identity: AppIdentity, labels: Mapping[str, str], *, require_namespace: bool = False
) -> tuple[str, ...]:
    """Return why a binding gives no card to a pod of an application; empty if it does.

    Each reason completes a sentence that begins with the binding.
    """
    return tuple(_mismatches(spec, identity, labels, require_namespace=require_namespace))


def _mismatches(
    spec: BindingSpec, identity: AppIdentity, labels: Mapping[str, str], *, require_namespace: bool
) -> Iterator[str]:
    if spec.app_name != identity.app:
        yield f"is for app {spec.app_name}"
    if spec.owner not in ("", identity.owner):
        yield f"is for owner {spec.owner}"
    if spec.namespace not in ("", identity.namespace):
        yield f"is for namespace {spec.namespace}"
    if require_namespace and not spec.namespace:
        yield "names no namespace, which allocation.bindings.require_namespace demands"
    if spec.pod_selector is None:
        yield "has no podSelector, so it selects no pod"
    elif not accepts(label_selector(spec.pod_selector), labels):
        yield "does not select the pod's labels"
    if not spec.uuid:
        yield "names no card"
    if spec.memory is not None:
        try:
            quantity.binding_mib(spec.memory)
        except AllocationError as error:
            yield f"has a memory that cannot be read: {error}"
