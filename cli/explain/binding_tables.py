"""The line and the tables about the GPUBindings of a pod's application."""

from collections.abc import Iterator

from allocation.bindings.binding import AppIdentity
from cli.tables import NOTHING, Table
from scheduler.api.bindings_types import BoundCardExplanation
from scheduler.api.explanation_types import Explanation


def lines(explanation: Explanation) -> list[str]:
    """Return how many cards are bound to the pod's application; no line for a pod that GPUBindings do not concern."""
    shown = explanation.bindings
    if shown is None:
        return []
    identity = AppIdentity(shown.app, shown.owner, shown.namespace)
    if not shown.cards:
        return [f"{identity}: no card bound in namespace {shown.namespace}"]
    count = len(shown.cards)
    return [f"{identity}: {count} card{'' if count == 1 else 's'} bound, policy {shown.policy}"]


def tables(explanation: Explanation) -> Iterator[Table]:
    """Yield the table of the bound cards, or that of the bindings that are not for this pod."""
    shown = explanation.bindings
    if shown is not None and shown.cards:
        headers = ("BOUND CARD", "NODE", "MEMORY(MiB)", "SHARE MODE", "BINDING", "CONSUMED BY")
        yield Table(headers, [_row(card) for card in shown.cards])
    if shown is not None and shown.others:
        rows = [(each.name, each.uuid or NOTHING, "; ".join(each.why)) for each in shown.others]
        yield Table(("OTHER BINDING", "CARD", "WHY NOT"), rows)


def _row(card: BoundCardExplanation) -> tuple[str, ...]:
    return (
        card.uuid,
        card.node or NOTHING,
        NOTHING if card.memory_mib is None else str(card.memory_mib),
        card.share_mode,
        card.binding,
        ",".join(card.consumed_by) or NOTHING,
    )
