"""The fields of pods and nodes that the commands read."""

from typing import Final

import msgspec

from allocation.pod import Container
from cluster.metadata import ObjectMeta

UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""Selects the pods that have not finished."""
NOT_FAILED: Final = "status.phase!=Failed"
"""Selects the pods that count for their gangs."""
LIVE: Final = f"spec.nodeName!=,{UNFINISHED}"
"""Selects the pods that have a node and have not finished: their shares count."""


class Meta(ObjectMeta, rename="camel"):
    """Metadata with labels and annotations."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class FieldReference(msgspec.Struct, rename="camel"):
    """A downward-API reference."""

    field_path: str = ""


class VariableSource(msgspec.Struct, rename="camel"):
    """The source of a variable's value; only references to fields are read."""

    field_ref: FieldReference | None = None


class Variable(msgspec.Struct, rename="camel"):
    """An entry of a container's environment."""

    name: str
    value: str = ""
    value_from: VariableSource | None = None


class PodContainer(Container, rename="camel"):
    """A container with its environment."""

    env: list[Variable] = []


class PodSpec(msgspec.Struct, rename="camel"):
    """The containers of a pod and its node."""

    containers: list[PodContainer] = []
    init_containers: list[PodContainer] = []
    node_name: str = ""


class ContainerStatus(msgspec.Struct, rename={"container_id": "containerID"}):
    """The name of a container and the ID that its runtime has given it, such as `containerd://<id>`."""

    name: str = ""
    container_id: str = ""

    @property
    def id(self) -> str:
        """The ID without the name of the runtime; empty before the container has started."""
        return self.container_id.rpartition("//")[2]


class PodStatus(msgspec.Struct, rename="camel"):
    """The phase of a pod, and its containers."""

    phase: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()

    @property
    def containers(self) -> tuple[ContainerStatus, ...]:
        """All containers that have started."""
        return tuple(each for each in (*self.init_container_statuses, *self.container_statuses) if each.id)


class Pod(msgspec.Struct):
    """A pod, without what the commands do not read."""

    metadata: Meta
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def finished(self) -> bool:
        """Whether its containers will never run again."""
        return self.status.phase in ("Succeeded", "Failed")

    def __str__(self) -> str:
        """Return namespace/name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


class NodeMetadata(msgspec.Struct):
    """The metadata of a node."""

    metadata: Meta
