"""The sentence and the tables that show an explanation to people."""

from collections.abc import Iterator, Mapping
from typing import Final

from allocation.reason_words import WORDS, meaning
from allocation.reasons import NodeReason
from allocation.request import MILLI_PER_PERCENT, MILLI_PER_TFLOP
from cli.tables import NOTHING, Table
from scheduler.api.bindings_types import BoundCardExplanation
from scheduler.api.explanation_types import (
    Amount,
    CardExplanation,
    CardVerdict,
    ClaimExplanation,
    ClaimState,
    Explanation,
    NodeExplanation,
    RequestedCards,
    Share,
)

_CLAIM_STATES: Final[Mapping[ClaimState, str]] = {
    "bound": "is bound",
    "unbound": "is bound with its pod",
    "provisioning": "its volume is being provisioned",
    "waiting": "is not bound, and does not wait for its pod",
    "missing": "does not exist",
    "deleting": "is being deleted",
    "lost": "lost its volume",
    "foreign": "belongs to something else than the pod",
}
_HAS_CARDS: Final = ("bound", "binding", "finished")
_NOT_CHECKED: Final = "the node was excluded before its cards were checked"
_NAMED: Final = 5


def sentence(explanation: Explanation) -> str:
    """Return the first line: where the pod is or would go, or why it waits."""
    pod = f"pod {explanation.namespace}/{explanation.pod}"
    if explanation.outcome != "waits" or not explanation.nodes:
        return f"{pod} {explanation.answer}"
    if explanation.note.startswith("no available node"):
        count = len(explanation.nodes)
        refused = f"none of the {count} nodes can take it now" if count > 1 else "the only node cannot take it now"
        return f"{pod} waits: {refused}; {_remedy(explanation)}"
    return f"{pod} {explanation.answer}"


def _remedy(explanation: Explanation) -> str:
    if explanation.resolvable:
        return "it may fit when other pods finish or are evicted"
    silent = sum(node.code == NodeReason.AgentSilent for node in explanation.nodes)
    if silent == len(explanation.nodes):
        return "their agents are silent: it waits until an agent reports again"
    agents = f"restart the silent agents of {silent} of them, " if silent else ""
    change = "change its requests, or the nodes that it accepts"
    if explanation.bindings is not None:
        change = "its application needs other bound cards, or the pod other requests"
    return f"no pod that finishes makes it fit: {agents}{change}"


def claim(explanation: Explanation) -> str:
    """Return the pod's GpuClaim, such as `pair (Exclusive)`, and whether it is missing; empty without one."""
    shown = explanation.claim
    if shown is None:
        return ""
    if shown.exclusivity is None:
        return f"{shown.name}, which does not exist"
    named = f"{shown.name} ({shown.exclusivity})"
    if shown.exists:
        return named
    return f"{named}, which was deleted" if explanation.outcome in _HAS_CARDS else f"{named}, not created yet"


def requests(explanation: Explanation) -> str:
    """Return what the pod requests, such as `main 2 cards with 40000 MiB and 30% each`; empty without cards."""
    shown = explanation.claim
    if shown is None:
        return "; ".join(f"{ask.container} {_cards(ask)}" for ask in explanation.asks)
    noun = "MIG instance" if shown.exclusivity == "MIG" else "card"
    of_profile = f" of profile {shown.profile}" if shown.profile else ""
    return "; ".join(f"{_cards(ask, noun)}{of_profile}, the same in every GPU container" for ask in explanation.asks)


def _cards(ask: RequestedCards, noun: str = "card") -> str:
    things = f"{ask.cards} {'whole ' if ask.whole else ''}{noun}{'' if ask.cards == 1 else 's'}"
    amounts = [] if ask.whole else [*_amounts(ask)]
    return f"{things} with {' and '.join(amounts)}{' each' if ask.cards > 1 else ''}" if amounts else things


def _amounts(ask: RequestedCards) -> Iterator[str]:
    """Return the memory and the compute of each card; a GpuClaim may say nothing about either."""
    if ask.memory_mib is None:
        yield f"{ask.memory_percent}% of the memory"
    elif ask.memory_mib:
        up_to = f" (up to {ask.memory_limit_mib})" if ask.memory_limit_mib else ""
        yield f"{ask.memory_mib} MiB{up_to}"
    if ask.cores or ask.cores_limit:
        up_to = f" (up to {_percent(ask.cores_limit)}%)" if ask.cores_limit else ""
        yield f"{_percent(ask.cores)}%{up_to} of the compute"
    if ask.tflops:
        yield f"{ask.tflops / MILLI_PER_TFLOP:g} TFLOPs"


def of_shares(explanation: Explanation) -> Table:
    """Return a row for each card that a container has or would have."""
    rows = [
        (each.container or NOTHING, str(each.index), each.uuid, _memory_of(each), _cores_of(each))
        for each in explanation.shares
    ]
    return Table(("CONTAINER", "CARD", "UUID", "MEMORY(MiB)", "CORES(%)"), rows)


def _memory_of(share: Share) -> str:
    return f"{share.memory_mib}-{share.memory_limit_mib}" if share.memory_limit_mib else str(share.memory_mib)


def _cores_of(share: Share) -> str:
    own = _percent(share.cores)
    return f"{own}-{_percent(share.cores_limit)}" if share.cores_limit else own


def of_claims(explanation: Explanation) -> Table:
    """Return a row for each PersistentVolumeClaim."""
    rows = [
        (
            each.name,
            _CLAIM_STATES[each.state] if each.exists or each.state == "missing" else _of_planned(each),
            each.storage_class or NOTHING,
            each.volume or NOTHING,
            each.usable_on or NOTHING,
        )
        for each in explanation.claims
    ]
    return Table(("CLAIM", "STATE", "CLASS", "VOLUME", "USABLE ON"), rows)


def _of_planned(claim: ClaimExplanation) -> str:
    return f"not created yet; {_CLAIM_STATES[claim.state]}"


def of_bindings(explanation: Explanation) -> Iterator[Table]:
    """Yield the table of the bound cards, or that of the bindings that are not for this pod."""
    shown = explanation.bindings
    if shown is not None and shown.cards:
        headers = ("BOUND CARD", "NODE", "MEMORY(MiB)", "SHARE MODE", "BINDING", "CONSUMED BY")
        yield Table(headers, [_bound_card(card) for card in shown.cards])
    if shown is not None and shown.others:
        rows = [(each.name, each.uuid or NOTHING, "; ".join(each.why)) for each in shown.others]
        yield Table(("OTHER BINDING", "CARD", "WHY NOT"), rows)


def _bound_card(card: BoundCardExplanation) -> tuple[str, ...]:
    return (
        card.uuid,
        card.node or NOTHING,
        NOTHING if card.memory_mib is None else str(card.memory_mib),
        card.share_mode,
        card.binding,
        ",".join(card.consumed_by) or NOTHING,
    )


def of_nodes(explanation: Explanation, *, wide: bool = False) -> Table:
    """Return a row for each reason, with its nodes; the nodes that can take the pod come first."""
    rows = [*_fitting(explanation.nodes, wide=wide)]
    codes = {node.name: tuple(node.counts) or (node.code,) for node in explanation.nodes}
    for group in explanation.reasons:
        resolvable = "yes" if group.resolvable else "no"
        meanings = meaning(codes[group.nodes[0]])
        rows.append((str(len(group.nodes)), group.reason, resolvable, meanings, some(group.nodes, wide=wide)))
    return Table(("NODES", "REASON", "RESOLVABLE", "MEANING", "NAMES"), rows, whole=("REASON",))


def _fitting(nodes: tuple[NodeExplanation, ...], *, wide: bool) -> Iterator[tuple[str, ...]]:
    chosen = [node for node in nodes if node.chosen]
    others = tuple(node.name for node in nodes if node.fits and not node.chosen)
    for node in chosen:
        yield "1", "chosen", "", "would go here" if node.score is None else f"score {node.score:.2f}", node.name
    if others:
        yield str(len(others)), "fits", "", "can take the pod too", some(others, wide=wide)


def of_cards(node: NodeExplanation) -> Table:
    """Return a row for each card and each container that was tried on it; free amounts only where they are known."""
    if any(card.memory_mib.free is None for card in node.cards):
        hidden = ("CARD", "UUID", "MODEL", "MEMORY(MiB)", "CONTAINER", "VERDICT", "MEANING")
        return Table(hidden, [row for card in node.cards for row in _hidden_card(card, node)], whole=("VERDICT",))
    headers = (
        *("CARD", "UUID", "FREE MEMORY(MiB)", "FREE CORES(%)", "FREE SLOTS"),
        *("CONTAINER", "VERDICT", "SCORE", "MEANING"),
    )
    return Table(headers, [row for card in node.cards for row in _card(card, node)], whole=("VERDICT",))


def _card(card: CardExplanation, node: NodeExplanation) -> Iterator[tuple[str, ...]]:
    cores = f"{_percent(card.cores.free or 0)}/{_percent(card.cores.total)}"
    head = (str(card.index), card.uuid, _amount(card.memory_mib), cores, _amount(card.slots))
    if not card.verdicts:
        yield (*head, NOTHING, NOTHING, "", _NOT_CHECKED)
    for verdict in card.verdicts:
        score = "" if verdict.score is None else f"{verdict.score:.2f}"
        yield (*head, verdict.container, _verdict(verdict, node), score, WORDS[verdict.verdict])


def _hidden_card(card: CardExplanation, node: NodeExplanation) -> Iterator[tuple[str, ...]]:
    head = (str(card.index), card.uuid, card.model or NOTHING, str(card.memory_mib.total))
    if not card.verdicts:
        yield (*head, NOTHING, NOTHING, _NOT_CHECKED)
    for verdict in card.verdicts:
        yield (*head, verdict.container, _verdict(verdict, node), WORDS[verdict.verdict])


def _verdict(verdict: CardVerdict, node: NodeExplanation) -> str:
    if not verdict.chosen:
        return verdict.verdict
    return f"{verdict.verdict},{'chosen' if node.chosen else 'best here'}"


def _amount(amount: Amount) -> str:
    return f"{amount.free}/{amount.total}"


def _percent(cores: int) -> str:
    return f"{cores / MILLI_PER_PERCENT:g}"


def some(names: tuple[str, ...], *, wide: bool) -> str:
    """Return the first names, or all of them if `wide`."""
    shown = names if wide else names[:_NAMED]
    return ",".join(shown) + (",…" if len(shown) < len(names) else "")
