"""The fields of a container that a request is read from, decoded straight from the API's JSON.

A process that needs more of a pod (its environment, its affinity) extends these structs; nobody decodes fields that
it does not read.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from allocation.quantity import Quantity


class Resources(msgspec.Struct, rename="camel", gc=False):
    """`resources` of a container."""

    limits: dict[str, Quantity] | None = None
    requests: dict[str, Quantity] | None = None


class Container(msgspec.Struct, rename="camel", gc=False):
    """A regular or init container."""

    name: str = ""
    resources: Resources = msgspec.field(default_factory=Resources)
    restart_policy: str | None = None


class Containers(Protocol):
    """Whatever has the containers of a pod: its spec."""

    @property
    def containers(self) -> Sequence[Container]:
        """Answer the regular containers."""

    @property
    def init_containers(self) -> Sequence[Container]:
        """Answer the init containers, sidecars among them."""
