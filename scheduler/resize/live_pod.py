"""A pod as the API server has it now, with what a resize depends on and the informer does not decode."""

from collections.abc import Mapping
from typing import Any

import msgspec

from cluster.metadata import ObjectMeta


class LiveMeta(ObjectMeta, rename="camel"):
    """Its metadata; `generation` counts changes of its spec, and is 0 where pods have none."""

    annotations: dict[str, str] = {}
    generation: int = 0
    deletion_timestamp: str | None = None


class InitContainer(msgspec.Struct, rename="camel"):
    """An init container, which ends before others start unless it is a sidecar."""

    name: str = ""
    restart_policy: str = ""


class LiveSpec(msgspec.Struct, rename="camel"):
    """Its spec; tolerations are kept as they are, because they are written again."""

    tolerations: list[dict[str, Any]] = []
    init_containers: list[InitContainer] = []


class ContainerState(msgspec.Struct):
    """Whether a container has ended."""

    terminated: dict[str, Any] | None = None


class LiveContainer(msgspec.Struct):
    """The last container that the kubelet started for one of the spec."""

    name: str = ""
    id: str = msgspec.field(default="", name="containerID")
    state: ContainerState = msgspec.field(default_factory=ContainerState)


class LiveStatus(msgspec.Struct, rename="camel"):
    """Its status; `observed_generation` is that of the spec and annotations by which the kubelet last acted."""

    observed_generation: int = 0
    container_statuses: list[LiveContainer] = []
    init_container_statuses: list[LiveContainer] = []


class LivePod(msgspec.Struct):
    """What the API server returns for a pod."""

    metadata: LiveMeta = msgspec.field(default_factory=LiveMeta)
    spec: LiveSpec = msgspec.field(default_factory=LiveSpec)
    status: LiveStatus = msgspec.field(default_factory=LiveStatus)

    def container_ids(self) -> Mapping[str, str]:
        """Return the ID of each container that was started, but of init containers that have ended."""
        sidecars = {each.name for each in self.spec.init_containers if each.restart_policy == "Always"}
        running = [
            *self.status.container_statuses,
            *(
                each
                for each in self.status.init_container_statuses
                if each.state.terminated is None or each.name in sidecars
            ),
        ]
        return {each.name: each.id for each in running if each.id}
