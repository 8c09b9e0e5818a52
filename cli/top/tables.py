"""The tables of `kubectl gpu top`: one row per node, or one row per card."""

import re
from collections.abc import Callable, Sequence
from typing import Final

from allocation.request import MILLI_PER_PERCENT
from cli.tables import NOTHING, Table, listed
from cli.top.usage import Amount, CardUsage, FleetUsage, NodeUsage

_READY: Final = "Ready"
_WHOLE: Final = "whole"
"""Instead of the slots of a card that one pod has alone."""
_PODS_SHOWN: Final = 2
# UUIDs from NVML begin with eight random digits, which is enough to tell the cards of a table apart.
_RANDOM_UUID: Final = re.compile(r"((?:GPU|MIG)-[0-9a-f]{8})-[0-9a-f-]{27}")


def of_nodes(fleet: FleetUsage, *, wide: bool = False) -> Table:
    """Return one row per node with the sums of its cards; the wide table adds the agent's state and the models."""
    headers = ["NODE", "STATE", "CARDS", "MEMORY(MiB)", "CORES(%)", "SLOTS", "PODS"]
    if wide:
        headers += ["AGENT", "MODELS"]
    return Table(headers, [_node(node, wide=wide) for node in fleet.nodes])


def of_cards(fleet: FleetUsage, *, wide: bool = False) -> Table:
    """Return one row per card; the wide table has the full UUID, the model, the mode and all pods."""
    headers = ["NODE", "CARD", "UUID", "MEMORY(MiB)", "CORES(%)", "SLOTS", "HEALTH", "PODS"]
    if wide:
        headers[3:3] = ["MODEL", "MODE"]
    return Table(headers, [_card(node, card, wide=wide) for node in fleet.nodes for card in node.cards])


def _node(node: NodeUsage, *, wide: bool) -> list[str]:
    row = [
        node.name,
        ",".join(map(str, node.conditions)) or _READY,
        str(len(node.cards)),
        str(_sum(node.cards, lambda card: card.memory_mib)),
        _percent(_sum(node.cards, lambda card: card.cores)),
        str(_sum(node.cards, lambda card: card.slots)),
        str(node.pods),
    ]
    if wide:
        row += [node.agent, ",".join(sorted({card.model for card in node.cards if card.model})) or NOTHING]
    return row


def _card(node: NodeUsage, card: CardUsage, *, wide: bool) -> list[str]:
    row = [
        node.name,
        str(card.index),
        card.uuid if wide else _RANDOM_UUID.sub(r"\1", card.uuid),
        str(card.memory_mib),
        _percent(card.cores),
        _WHOLE if card.is_whole else str(card.slots),
        card.state,
        listed([str(share) for share in card.shares], shown=None if wide else _PODS_SHOWN),
    ]
    if wide:
        row[3:3] = [card.model or NOTHING, card.mode]
    return row


def _sum(cards: Sequence[CardUsage], amount: Callable[[CardUsage], Amount]) -> Amount:
    amounts = [amount(card) for card in cards]
    return Amount(sum(each.used for each in amounts), sum(each.total for each in amounts))


def _percent(cores: Amount) -> str:
    return f"{cores.used / MILLI_PER_PERCENT:g}/{cores.total / MILLI_PER_PERCENT:g}"
