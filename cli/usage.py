"""What `kubectl gpu top` knows of a fleet: nodes, their cards, and who has what of each."""

from typing import Final, Literal

import msgspec

from cluster.gpu_node_status import HEALTHY, UNHEALTHY

CORDONED: Final = "Cordoned"
CONDITIONS_OF_CARDS: Final = (UNHEALTHY, CORDONED)
Agent = Literal["Alive", "Silent", "Unknown", "None"]
"""Whether a node's agent lives: None where only a register annotation says what cards there are."""


class Amount(msgspec.Struct, frozen=True):
    """How much is reserved, and how much there is."""

    used: int
    total: int

    def __str__(self) -> str:
        return f"{self.used}/{self.total}"


class Share(msgspec.Struct, frozen=True, rename={"memory_mib": "memoryMiB"}):
    """What one container has of a card: MiB and millicards."""

    namespace: str
    pod: str
    container: str
    memory_mib: int
    cores: int

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}/{self.container}"


class CardUsage(msgspec.Struct, frozen=True, rename={"memory_mib": "memoryMiB"}):
    """One card: memory in MiB, cores in millicards (1000 is the whole card), slots in containers.

    Attributes:
        message: why it is not healthy, where the agent says.
        cordoned: whether an administrator keeps new pods from it.
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

    @property
    def state(self) -> str:
        """Whether new pods may have it, in kubectl's manner."""
        health = HEALTHY if self.healthy else UNHEALTHY
        return f"{health},{CORDONED}" if self.cordoned else health


class Condition(msgspec.Struct, frozen=True):
    """Something that keeps new pods from a node, or from as many of its cards as `cards` says: a word, and words."""

    type: str
    message: str
    cards: int = 0

    def __str__(self) -> str:
        return f"{self.type}({self.cards})" if self.cards else self.type


class NodeUsage(msgspec.Struct, frozen=True, rename="camel"):
    """One node.

    Attributes:
        agent: whether its agent lives.
        silent_since: when a silent agent last gave a sign of life, in RFC 3339; empty where it never did.
        conditions: what keeps new pods away, the gravest first; empty where nothing does.
        cards: by index.
    """

    name: str
    agent: Agent
    silent_since: str
    conditions: tuple[Condition, ...]
    cards: tuple[CardUsage, ...]

    @property
    def pods(self) -> int:
        """How many pods have shares of its cards."""
        return len({(share.namespace, share.pod) for card in self.cards for share in card.shares})


class FleetUsage(msgspec.Struct, frozen=True):
    """What `kubectl gpu top -o json` prints: nodes by name."""

    nodes: tuple[NodeUsage, ...]

    def of_namespace(self, namespace: str) -> "FleetUsage":
        """Answer the cards of which a namespace has shares, with its shares only; amounts stay everybody's."""
        nodes = []
        for node in self.nodes:
            cards = tuple(
                msgspec.structs.replace(card, shares=shares)
                for card in node.cards
                if (shares := tuple(share for share in card.shares if share.namespace == namespace))
            )
            if cards:
                nodes.append(msgspec.structs.replace(node, cards=cards))
        return FleetUsage(tuple(nodes))
