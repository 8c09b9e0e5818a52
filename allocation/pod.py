"""The fields of a container that its request is read from, decoded directly from the API's JSON.

A process that needs other fields of a pod (environment, affinity) extends these structs, so that each process decodes
only the fields that it reads.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from allocation.quantity import Quantity


class Resources(msgspec.Struct, rename="camel", gc=False):
    """The `resources` of a container."""

    limits: Mapping[str, Quantity] | None = None
    requests: Mapping[str, Quantity] | None = None


class Container(msgspec.Struct, rename="camel", gc=False):
    """A regular or init container."""

    name: str = ""
    resources: Resources = msgspec.field(default_factory=Resources)
    restart_policy: str | None = None


class Containers(Protocol):
    """The spec of a pod, as far as its containers are concerned."""

    @property
    def containers(self) -> Sequence[Container]:
        """The regular containers."""

    @property
    def init_containers(self) -> Sequence[Container]:
        """The init containers, including sidecars."""
