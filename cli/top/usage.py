"""The output of `kubectl gpu top`: nodes, their cards, and the shares of each card."""

import re
from itertools import chain
from typing import Final

import msgspec

from cli.liveness.agents import AgentState
from cluster.gpu_node_status import HEALTHY, UNHEALTHY

# UUIDs from NVML begin with eight random digits, which is enough to tell the cards of a table apart.
_RANDOM_UUID: Final = re.compile(r"((?:GPU|MIG)-[0-9a-f]{8})-[0-9a-f-]{27}")
CORDONED: Final = "Cordoned"
DOUBLE_BOOKED: Final = "DoubleBooked"
CONDITIONS_OF_CARDS: Final = (UNHEALTHY, CORDONED)


def short_uuid(uuid: str) -> str:
    """Return the part of a UUID that a table shows."""
    return _RANDOM_UUID.sub(r"\1", uuid)


class Amount(msgspec.Struct, frozen=True):
    """The reserved amount and the total."""

    used: int
    total: int

    def __str__(self) -> str:
        return f"{self.used}/{self.total}"


_JSON_NAMES: Final = {"memory_mib": "memoryMiB", "memory_limit_mib": "memoryLimitMiB", "cores_limit": "coresLimit"}


class Share(msgspec.Struct, frozen=True, rename=_JSON_NAMES):
    """The share of a card that one container has, in MiB and millicards.

    Attributes:
        claim: the GpuClaim of the pod, whose containers have one share together; empty without one.
        whole: whether no other pod may use the card.
        memory_limit_mib: the most that it may use, if that is more than it has; else 0. The same of `cores_limit`.
    """

    namespace: str
    pod: str
    container: str
    memory_mib: int
    cores: int
    claim: str = ""
    whole: bool = False
    memory_limit_mib: int = 0
    cores_limit: int = 0

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}/{self.container}{f'({self.claim})' if self.claim else ''}"


_CARD_NAMES: Final = {
    "memory_mib": "memoryMiB",
    "double_booked_by": "doubleBookedBy",
    "burst_memory_mib": "burstMemoryMiB",
    "burst_cores": "burstCores",
}


class CardUsage(msgspec.Struct, frozen=True, rename=_CARD_NAMES):
    """One card: memory in MiB, cores in millicards (1000 is the whole card), slots in containers.

    Attributes:
        message: why the card is not healthy, if the agent reports it.
        cordoned: whether an administrator has closed the card to new pods.
        double_booked_by: the ResourceClaims of other DRA drivers that have the card although pods have it, too.
        burst_memory_mib: the MiB that containers may use beyond what is reserved for them. The same of `burst_cores`.
    """

    index: int
    uuid: str
    model: str
    mode: str
    healthy: bool
    message: str
    cordoned: bool
    memory_mib: Amount
    cores: Amount
    slots: Amount
    shares: tuple[Share, ...]
    double_booked_by: tuple[str, ...] = ()
    burst_memory_mib: int = 0
    burst_cores: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether one pod has the card alone."""
        return any(share.whole for share in self.shares)

    @property
    def state(self) -> str:
        """Health, cordon and double booking, formatted as `kubectl get nodes` does."""
        health = HEALTHY if self.healthy else UNHEALTHY
        closed = {CORDONED: self.cordoned, DOUBLE_BOOKED: bool(self.double_booked_by)}
        return ",".join([health, *(state for state, holds in closed.items() if holds)])


class Condition(msgspec.Struct, frozen=True):
    """A reason why a node, or `cards` of its cards, takes no new pods: a type and a message."""

    type: str
    message: str
    cards: int = 0

    def __str__(self) -> str:
        return f"{self.type}({self.cards})" if self.cards else self.type


class NodeUsage(msgspec.Struct, frozen=True, rename="camel"):
    """One node.

    Attributes:
        agent: the state of its agent.
        silent_since: the last heartbeat of a silent agent, in RFC 3339, or empty without one.
        conditions: the reasons why the node or some cards take no new pods, the most severe first.
        cards: by index.
        lost_shares: the shares of cards that the node does not report.
    """

    name: str
    agent: AgentState
    silent_since: str
    conditions: tuple[Condition, ...]
    cards: tuple[CardUsage, ...]
    lost_shares: tuple[Share, ...] = ()

    @property
    def pods(self) -> int:
        """The number of pods with shares of its cards, whether they are reported or not."""
        shares = chain(self.lost_shares, *(card.shares for card in self.cards))
        return len({(share.namespace, share.pod) for share in shares})


class FleetUsage(msgspec.Struct, frozen=True):
    """The output of `kubectl gpu top -o json`: nodes sorted by name."""

    nodes: tuple[NodeUsage, ...]

    def of_namespace(self, namespace: str) -> "FleetUsage":
        """Return the cards with shares of a namespace, and these shares only; the amounts still count all pods."""
        nodes = []
        for node in self.nodes:
            cards = tuple(
                msgspec.structs.replace(card, shares=shares)
                for card in node.cards
                if (shares := tuple(share for share in card.shares if share.namespace == namespace))
            )
            lost = tuple(share for share in node.lost_shares if share.namespace == namespace)
            if cards or lost:
                nodes.append(msgspec.structs.replace(node, cards=cards, lost_shares=lost))
        return FleetUsage(tuple(nodes))
