"""The shares of a namespace's pods, as the HTTP API returns them and the command line shows them."""

import msgspec

from scheduler.api.json_names import json_name


class PodShare(msgspec.Struct, frozen=True, rename=json_name):
    """The share of a card that one container of the namespace uses: MiB and millicards.

    Attributes:
        claim: the GpuClaim of the pod, whose containers have one share together; empty without one.
        whole: whether no other pod may use the card.
        memory_limit_mib: the most that it may use, if that is more than it has; else 0. The same of `cores_limit`.
    """

    pod: str
    container: str
    memory_mib: int
    cores: int
    claim: str = ""
    whole: bool = False
    memory_limit_mib: int = 0
    cores_limit: int = 0


class SharedCard(msgspec.Struct, frozen=True, rename=json_name):
    """A card with shares of the namespace: its size in MiB, millicards and containers, and the shares."""

    index: int
    uuid: str
    model: str
    mode: str
    healthy: bool
    cordoned: bool
    memory_mib: int
    cores: int
    slots: int
    shares: tuple[PodShare, ...]


class SharedNode(msgspec.Struct, frozen=True, rename=json_name):
    """A node with such cards; `closed` is the code of why it takes no new GPU pods, and `reason` the text."""

    name: str
    closed: str
    reason: str
    cards: tuple[SharedCard, ...]


class NamespaceShares(msgspec.Struct, frozen=True, rename=json_name):
    """The nodes and cards with shares of a namespace, by name and position."""

    namespace: str
    nodes: tuple[SharedNode, ...]
