"""How an explanation is shown to people."""

from collections.abc import Iterator
from typing import Final

from allocation.request import MILLI_PER_PERCENT
from cli.reason_words import WORDS, meaning
from cli.tables import NOTHING, Table
from scheduler.explanation_api import Amount, Ask, CardExplanation, Explanation, NodeExplanation

_NAMED: Final = 5


def sentence(told: Explanation) -> str:
    """Answer the first line: what becomes of the pod."""
    spoken = f"pod {told.namespace}/{told.pod}"
    if told.outcome != "waits" or not told.nodes:
        return f"{spoken} {told.answer}"
    if told.note.startswith("no available node"):
        many = f"none of the {len(told.nodes)} nodes takes" if len(told.nodes) > 1 else "the only node does not take"
        return f"{spoken} waits: {many} it now; {_hope(told)}"
    return f"{spoken} {told.answer}"


def _hope(told: Explanation) -> str:
    if told.curable:
        return "pods that finish, or are evicted, could change that"
    return "no pod that finishes could change that: ask for something else, or for other nodes"


def asks(told: Explanation) -> str:
    """Answer what the pod asks for, `main 2 cards with 40000 MiB and 30% each`; empty where it is no card."""
    return "; ".join(f"{ask.container} {_cards(ask)}" for ask in told.asks)


def _cards(ask: Ask) -> str:
    memory = f"{ask.memory_mib} MiB" if ask.memory_mib is not None else f"{ask.memory_percent}% of the memory"
    cores = f" and {_percent(ask.cores)}% of the compute" if ask.cores else ""
    return f"1 card with {memory}{cores}" if ask.cards == 1 else f"{ask.cards} cards with {memory}{cores} each"


def of_shares(told: Explanation) -> Table:
    """Answer a line for each card that a container has or would have."""
    rows = [
        (each.container or NOTHING, str(each.index), each.uuid, str(each.memory_mib), _percent(each.cores))
        for each in told.shares
    ]
    return Table(("CONTAINER", "CARD", "UUID", "MEMORY(MiB)", "CORES(%)"), rows)


def of_nodes(told: Explanation, *, wide: bool = False) -> Table:
    """Answer a line for each reason, with the nodes that have it; the nodes that take the pod come first."""
    rows = [*_fitting(told.nodes, wide=wide)]
    for group in told.reasons:
        curable = "yes" if group.curable else "no"
        rows.append(
            (str(len(group.nodes)), group.reason, curable, meaning(group.reason), _some(group.nodes, wide=wide))
        )
    return Table(("NODES", "REASON", "CURABLE", "MEANS", "NAMES"), rows)


def _fitting(nodes: tuple[NodeExplanation, ...], *, wide: bool) -> Iterator[tuple[str, ...]]:
    chosen = [node for node in nodes if node.chosen]
    others = tuple(node.name for node in nodes if node.fits and not node.chosen)
    for node in chosen:
        yield "1", "chosen", "", f"score {node.score or 0:.2f}", node.name
    if others:
        yield str(len(others)), "fits", "", "takes the pod too", _some(others, wide=wide)


def of_cards(node: NodeExplanation) -> Table:
    """Answer a line for each card, and each container that was tried on it."""
    rows = [row for card in node.cards for row in _card(card, node)]
    headers = (
        "CARD",
        "UUID",
        "FREE MEMORY(MiB)",
        "FREE CORES(%)",
        "FREE SLOTS",
        "CONTAINER",
        "VERDICT",
        "SCORE",
        "MEANS",
    )
    return Table(headers, rows)


def _card(card: CardExplanation, node: NodeExplanation) -> Iterator[tuple[str, ...]]:
    cores = Amount(card.cores.free // MILLI_PER_PERCENT, card.cores.total // MILLI_PER_PERCENT)
    head = (str(card.index), card.uuid, _amount(card.memory_mib), _amount(cores), _amount(card.slots))
    if not card.verdicts:
        yield (*head, NOTHING, NOTHING, "", "its node was not asked for cards")
    for said in card.verdicts:
        verdict = said.verdict
        if said.chosen:
            verdict += ",chosen" if node.chosen else ",best here"
        yield (*head, said.container, verdict, f"{said.score:.2f}", WORDS[said.verdict])


def _amount(amount: Amount) -> str:
    return f"{amount.free}/{amount.total}"


def _percent(cores: int) -> str:
    return f"{cores / MILLI_PER_PERCENT:g}"


def _some(names: tuple[str, ...], *, wide: bool) -> str:
    shown = names if wide else names[:_NAMED]
    return ",".join(shown) + (",…" if len(shown) < len(names) else "")
