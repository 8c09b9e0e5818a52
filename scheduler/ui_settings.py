"""The settings of the page that shows people what the scheduler knows."""

import ipaddress

import msgspec

_MOST_STREAMS = 1024


class UiSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The page at `/ui/`, which shows the fleet and why pods wait.

    Attributes:
        enabled: whether it is served.
        host: the address to listen on, a loopback address: it is reached through `kubectl port-forward`, so all who may
            forward ports of the scheduler's pods may read the page.
        port: the port to listen on.
        exposed: whether it is served on the port of `namespace_api`, too. There readers need a token of the cluster,
            and see only the objects of namespaces whose pods they may list.
        most_streams: how many pages may be open at the same time on either port, at most 1024.
    """

    enabled: bool = False
    host: str = "127.0.0.1"
    port: int = 8446
    exposed: bool = False
    most_streams: int = 64

    def __post_init__(self) -> None:
        """Refuse an address that other hosts can reach: the page does not authenticate its readers."""
        if not is_loopback(self.host):
            raise ValueError(
                f"ui.host is {self.host!r}: the page does not authenticate its readers, so it must be a loopback"
                " address; reach it with kubectl port-forward"
            )
        if self.exposed and not self.enabled:
            raise ValueError("ui.exposed needs the page: set ui.enabled")
        if not 1 <= self.most_streams <= _MOST_STREAMS:
            raise ValueError(f"ui.most_streams is {self.most_streams}: it must be an integer from 1 to {_MOST_STREAMS}")


def is_loopback(host: str) -> bool:
    """Whether only processes on this host reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
