"""The ports of its node that a pod takes, and which of them collide."""

from collections.abc import Iterable
from typing import Final

from scheduler.pod_spec.spec import PodSpec

HostPort = tuple[str, str, int]
"""Address, protocol, port."""

_ANY_ADDRESS = "0.0.0.0"  # noqa: S104 -- compared with, not bound to
_NONE: Final = frozenset[HostPort]()
"""Nearly every pod has none, and each further empty set takes 216 bytes."""


def host_ports(spec: PodSpec) -> frozenset[HostPort]:
    """Return the ports that a pod takes as long as it runs, those of its sidecars included."""
    ports = frozenset(
        (port.host_ip or _ANY_ADDRESS, port.protocol, port.host_port)
        for container in (*spec.containers, *(each for each in spec.init_containers if each.restart_policy == "Always"))
        for port in container.ports
    )
    return ports or _NONE


def collide(wanted: Iterable[HostPort], taken: Iterable[HostPort]) -> bool:
    """Whether one of the ports `wanted` is the same as one of `taken`; any address collides with each other one."""
    return any(_is_same(mine, other) for mine in wanted for other in taken)


def _is_same(left: HostPort, right: HostPort) -> bool:
    return left[1:] == right[1:] and (left[0] == right[0] or _ANY_ADDRESS in (left[0], right[0]))
