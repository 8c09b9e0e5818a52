"""A GPUBinding: a card belongs to an application (docs/gpubindings.md).

An application service writes it before the pods of the application exist. The scheduler only reads it.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from allocation import quantity
from allocation.label_selector import LabelSelector
from allocation.quantity import Quantity

_MIG_SUFFIX: Final = "["
"""Begins the place of a MIG instance behind the UUID of its card, as HAMi writes it."""


class BindingSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a binding.

    Attributes:
        uuid: the card.
        app_name: the application.
        owner: its user; empty for every user, as older services write it.
        namespace: of its pods; empty for every namespace.
        pod_selector: selects its pods; None selects none.
        memory: of the card for each pod, as written (`allocation.quantity.binding_mib`); None sets none.
    """

    uuid: str
    app_name: str
    owner: str = ""
    namespace: str = ""
    pod_selector: LabelSelector | None = None
    memory: Quantity | None = None

    @property
    def card(self) -> str:
        """The UUID of the card, without the place of a MIG instance."""
        return self.uuid.partition(_MIG_SUFFIX)[0]

    def memory_mib(self) -> int | None:
        """Return the memory in MiB, or None if the binding sets none.

        Raises:
            AllocationError: it cannot be read.
        """
        return None if self.memory is None else quantity.binding_mib(self.memory)


class Binding(msgspec.Struct, frozen=True):
    """A binding: its name, its creationTimestamp as the API server writes times, and its spec."""

    name: str
    created: str
    spec: BindingSpec


FindBindings = Callable[[str], Iterable[Binding]]
"""Returns the bindings of an application."""
