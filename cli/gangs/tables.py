"""The tables of `kubectl gpu gangs`: one row per gang, or one per pod of a gang."""

from collections.abc import Iterator
from datetime import datetime

from cli.tables import NOTHING, Table, age
from scheduler.api.gang_types import GangMember, GangsView, GangView


def of_gangs(view: GangsView, *, now: float, wide: bool) -> Table:
    """Return one row per gang at the time `now`; the wide table adds its timeout, its pause and its block."""
    headers = ["NAMESPACE", "GANG", "STATE", "PLACED", "SIZE", "WAITING", "AGE"]
    headers += ["TIMEOUT", "PAUSE", "BLOCK"] if wide else []
    rows = []
    for gang in view.gangs:
        row = [gang.namespace, gang.name, gang.state, str(_placed(gang)), str(gang.size), str(gang.waiting)]
        row.append(_age(gang.waiting_since, now))
        if wide:
            row += [_seconds(gang.timeout_seconds), _seconds(gang.pause_seconds), gang.block or NOTHING]
        rows.append([*row, "; ".join(filter(None, (gang.disagreement, gang.message)))])
    return Table([*headers, "MESSAGE"], rows, whole=("GANG", "STATE"))


def of_members(gang: GangView) -> Table:
    """Return one row per pod of a gang."""
    return Table(("POD", "STATE", "NODE", "CARDS", "MESSAGE"), [_member(each) for each in gang.members], whole=("POD",))


def about(gang: GangView) -> Iterator[str]:
    """Yield what is to be said of a gang before its pods are listed."""
    yield f"gang {gang.namespace}/{gang.name}: {gang.state}, {_placed(gang)} of {gang.size} pods have nodes"
    if gang.pause_seconds:
        yield f"pauses: it may be decided again in {_seconds(gang.pause_seconds)}"
    if gang.timeout_seconds:
        yield f"timeout: {_seconds(gang.timeout_seconds)}"
    if gang.block:
        yield f"block: all its nodes must have the same label {gang.block}"
    if gang.disagreement:
        yield f"warning: {gang.disagreement}"


def _placed(gang: GangView) -> int:
    """Return how many pods count as placed."""
    return gang.placed + gang.succeeded


def _member(member: GangMember) -> list[str]:
    cards = ",".join(str(card.index) for card in member.cards)
    return [member.pod, member.state, member.node or NOTHING, cards or NOTHING, member.message]


def _age(since: str, now: float) -> str:
    return age(now - datetime.fromisoformat(since).timestamp()) if since else NOTHING


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f}s" if seconds else NOTHING
