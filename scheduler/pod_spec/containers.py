"""The containers of a pod, with their host ports and images."""

import sys

import msgspec

from allocation.pod import Container
from scheduler.pod_spec.shared_values import shared

_IMAGE_CHARACTERS = 512
"""More than the name of an image with its digest can have."""


class Port(msgspec.Struct, rename="camel", gc=False):
    """A container port; only one with a host port matters."""

    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class PodContainer(Container, rename="camel", gc=False):
    """A container with its host ports and its image, whose name is empty if it is too long for any image."""

    ports: tuple[Port, ...] = ()
    image: str = ""

    def __post_init__(self) -> None:
        """Share what many containers have; keep only host ports."""
        self.image = sys.intern(self.image) if len(self.image) <= _IMAGE_CHARACTERS else ""
        self.name = sys.intern(self.name)
        resources = self.resources
        are_equal = resources.requests == resources.limits  # as those of cards are
        if resources.limits:
            resources.limits = shared(resources.limits)
        if are_equal:
            resources.requests = resources.limits
        elif resources.requests:
            resources.requests = shared(resources.requests)
        if self.ports:
            self.ports = tuple(port for port in self.ports if port.host_port)
