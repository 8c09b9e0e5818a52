"""GPUBindings, by which a card belongs to an application, and the application that a pod belongs to.

An application service writes a binding before the pods of the application exist. The scheduler only reads it
(docs/gpubindings.md).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal, Self

import msgspec

from allocation import names, quantity
from allocation.label_selector import LabelSelector
from allocation.names import SHARE_MODE_PREFIX
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


class AppIdentity(msgspec.Struct, frozen=True):
    """An application of a user in a namespace, to which a pod belongs by its labels.

    Attributes:
        app: its name.
        owner: its user; may be empty.
        namespace: of its pods.
    """

    app: str
    owner: str
    namespace: str

    @classmethod
    def of_labels(cls, labels: Mapping[str, str], namespace: str) -> Self | None:
        """Return the application of a pod with these labels, or None if it belongs to none."""
        app = labels.get(names.APP_NAME)
        return cls(app, labels.get(names.APP_OWNER, ""), namespace) if app else None

    def __str__(self) -> str:
        """Return the application as messages name it."""
        return f"app {self.app} of {self.owner}" if self.owner else f"app {self.app}"

    def has(self, binding: BindingSpec, *, require_namespace: bool = False) -> bool:
        """Whether a binding gives its card to this application; with `require_namespace` it must name the namespace."""
        return (
            bool(binding.uuid)
            and binding.app_name == self.app
            and binding.owner in ("", self.owner)
            and (binding.namespace == self.namespace or (not binding.namespace and not require_namespace))
        )


ShareMode = Literal["exclusive", "memory-slicing", "time-slicing"]

_MODES: Mapping[str, ShareMode] = {"0": "exclusive", "1": "memory-slicing", "2": "time-slicing"}


def share_modes(annotations: Mapping[str, str]) -> dict[str, ShareMode]:
    """Return the share mode of each card that the annotations of a node name; an unknown value means time slicing."""
    return {
        key.removeprefix(SHARE_MODE_PREFIX): _MODES.get(value, "time-slicing")
        for key, value in annotations.items()
        if key.startswith(SHARE_MODE_PREFIX)
    }
