"""What is said about a pod when somebody asks, over HTTP and on the command line."""

from typing import Literal

import msgspec

from scheduler.queue import Standing

_MIB = "MiB"


def spoken(name: str) -> str:
    """Answer how a field is called in JSON: `free_mib` is `freeMiB`."""
    head, *rest = name.split("_")
    return head + "".join(_MIB if part == "mib" else part.capitalize() for part in rest)


class Amount(msgspec.Struct, frozen=True):
    """How much of a card nobody has, and how much there is: MiB, millicards (1000 is a whole card), or containers."""

    free: int
    total: int


class CardVerdict(msgspec.Struct, frozen=True, rename=spoken):
    """What the card says of one container of the pod.

    Attributes:
        container: its name.
        verdict: `FITS`, or the first test that the card fails.
        score: how full the card would be with the container, 0 to 30.
        chosen: whether the container would get it if the pod went to this node.
    """

    container: str
    verdict: str
    score: float
    chosen: bool


class CardExplanation(msgspec.Struct, frozen=True, rename=spoken):
    """One card; it has no verdicts where its node as a whole does not take the pod, or the pod asks for no card."""

    index: int
    uuid: str
    model: str
    healthy: bool
    cordoned: bool
    memory_mib: Amount
    cores: Amount
    slots: Amount
    verdicts: tuple[CardVerdict, ...]


class NodeExplanation(msgspec.Struct, frozen=True, rename=spoken):
    """One node.

    Attributes:
        name: its name.
        fits: whether it takes the pod.
        chosen: whether the pod would go there.
        reason: why it does not fit, as in events; empty where it does.
        curable: whether pods that finish or are evicted could change that.
        container: the container that does not fit; empty where the node as a whole does not.
        counts: cards by reason; they sum to the node's cards. Empty where the node as a whole does not fit.
        score: how good it is; None where it does not fit.
        cards: its cards by position; empty where they were not asked for (`?node=`) and the fleet is large.
    """

    name: str
    fits: bool
    chosen: bool
    reason: str
    curable: bool
    container: str
    counts: dict[str, int]
    score: float | None
    cards: tuple[CardExplanation, ...]


class ReasonGroup(msgspec.Struct, frozen=True, rename=spoken):
    """Nodes that do not fit for one reason; `curable` if pods that finish or are evicted could change it on any."""

    reason: str
    curable: bool
    nodes: tuple[str, ...]


class Share(msgspec.Struct, frozen=True, rename=spoken):
    """What a container has, or would have, of one card: MiB and millicards."""

    container: str
    uuid: str
    index: int
    memory_mib: int
    cores: int


class Ask(msgspec.Struct, frozen=True, rename=spoken):
    """What a container asks for: so many cards, of each so much memory and compute.

    Attributes:
        container: its name.
        cards: how many different ones.
        memory_mib: MiB of each; None where it is a percentage.
        memory_percent: of each card's memory; 0 where it is in MiB.
        cores: millicards of each.
    """

    container: str
    cards: int
    memory_mib: int | None
    memory_percent: int
    cores: int


class Policy(msgspec.Struct, frozen=True, rename=spoken):
    """By what nodes and cards are chosen, in words."""

    nodes: str
    cards: str


class Explanation(msgspec.Struct, frozen=True, rename=spoken):
    """Everything about one pod.

    Attributes:
        namespace: of the pod.
        pod: its name.
        outcome: `fits`, it would be placed now; `waits`; `held`, nothing but another spec helps; `bound`; `binding`,
            its Binding is under way; `finished`; `gated`; `foreign`, another scheduler's.
        answer: that in a sentence.
        note: what the event of the decision says; empty where there is none to make.
        node: where it is or would go.
        shares: what it has or would have there.
        asks: what the pod asks for, by container; empty where it asks for no card, or is settled.
        policy: by what is chosen; None where the pod cannot be read, or is settled.
        curable: whether pods that finish or are evicted could let a waiting pod in.
        nodes: every node, by name.
        reasons: the nodes that do not fit by reason, the most frequent first.
        queue: where it waits; None where it does not, or where only the scheduler itself knows.
    """

    namespace: str
    pod: str
    outcome: Literal["fits", "waits", "held", "bound", "binding", "finished", "gated", "foreign"]
    answer: str
    note: str = ""
    node: str = ""
    shares: tuple[Share, ...] = ()
    asks: tuple[Ask, ...] = ()
    policy: Policy | None = None
    curable: bool = False
    nodes: tuple[NodeExplanation, ...] = ()
    reasons: tuple[ReasonGroup, ...] = ()
    queue: Standing | None = None
