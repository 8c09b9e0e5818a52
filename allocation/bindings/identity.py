"""The application that a pod belongs to, by its labels (docs/gpubindings.md#which-pods)."""

from collections.abc import Mapping
from typing import Self

import msgspec

from allocation import names
from allocation.bindings.binding import BindingSpec


class AppIdentity(msgspec.Struct, frozen=True):
    """An application of a user in a namespace.

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
