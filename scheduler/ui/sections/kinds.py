"""The sections by name, as a page asks for them."""

from collections import deque
from collections.abc import Mapping

from cluster.events import Recorded
from scheduler.ui.feed import Kind
from scheduler.ui.history import NO_HISTORY, History
from scheduler.ui.sections.decisions import Decisions
from scheduler.ui.sections.fleet import Capacities, Use
from scheduler.ui.sections.hours import Hours
from scheduler.ui.sections.node import NodeDetail
from scheduler.ui.sections.objects import Bindings, Claims, Gangs
from scheduler.ui.sections.pod import PodDetail
from scheduler.ui.sections.shares import Queues, Quotas
from scheduler.ui.sections.usage import Usage
from scheduler.ui.sections.waiting import Ranks, Waiting


def kinds(recent: deque[Recorded], history: History = NO_HISTORY) -> Mapping[str, Kind]:
    """Return the sections; `recent` are the events that this replica recorded last, `history` what cards were used."""
    return {
        "capacities": Kind(lambda term, _: Capacities(term)),
        "use": Kind(lambda term, _: Use(term)),
        "waiting": Kind(lambda term, _: Waiting(term)),
        "ranks": Kind(lambda term, _: Ranks(term)),
        "decisions": Kind(lambda _term, _: Decisions(recent)),
        "queues": Kind(lambda term, _: Queues(term)),
        "quotas": Kind(lambda term, _: Quotas(term)),
        "hours": Kind(lambda term, _: Hours(term)),
        "usage": Kind(lambda term, _: Usage(term)),
        "gangs": Kind(lambda term, _: Gangs(term)),
        "claims": Kind(lambda term, _: Claims(term)),
        "bindings": Kind(lambda term, _: Bindings(term)),
        "node": Kind(lambda term, name: NodeDetail(term, name, history), is_named=True),
        "pod": Kind(lambda term, name: PodDetail(term, name, recent), is_named=True),
    }
