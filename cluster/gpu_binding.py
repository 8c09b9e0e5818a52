"""The GPUBinding object, which an application service writes: a card belongs to an application of a user."""

import msgspec

from allocation.bindings.binding import Binding, BindingSpec
from cluster.metadata import ObjectMeta


class BindingMeta(ObjectMeta, rename="camel"):
    """The metadata of a binding."""

    creation_timestamp: str | None = None


class GpuBinding(msgspec.Struct):
    """A binding; nothing here ever writes one."""

    metadata: BindingMeta
    spec: BindingSpec

    @property
    def binding(self) -> Binding:
        """What decides which cards it grants."""
        return Binding(self.metadata.name, self.metadata.creation_timestamp or "", self.spec)
