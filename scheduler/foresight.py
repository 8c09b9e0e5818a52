"""What the loop would do with a pod now, and what every node says of it. Nothing is changed by asking."""

from collections.abc import Mapping

import msgspec

from allocation.errors import AllocationError
from scheduler import cycle, judgement
from scheduler.cycle import Decision
from scheduler.judgement import Judgement, Wish
from scheduler.objects import Pod
from scheduler.state import State


class Foresight(msgspec.Struct, frozen=True):
    """A decision before it is taken.

    Attributes:
        decision: what the loop would decide.
        wish: what the pod asks of cards; None where that cannot be read: then no node was asked.
        judged: the nodes on which the pod may run, by their cards.
        refusals: why the other nodes refuse it, in kube-scheduler's words.
    """

    decision: Decision
    wish: Wish | None = None
    judged: Judgement = Judgement({}, {})
    refusals: Mapping[str, str] = {}


def foresee(state: State, pod: Pod) -> Foresight:
    """Ask the loop's own functions about a pod, which may or may not be known."""
    state.wishes.lift(pod.uid)
    try:
        decision = cycle.foresee(state, pod)
        try:
            wish = judgement.read(pod.spec, pod.metadata.annotations, state.settings)
        except AllocationError:
            return Foresight(decision)
        nodes = state.fleet.sort(pod)
        judged = judgement.judge(
            wish,
            nodes.fitting,
            ledger=state.ledger,
            shut=state.shut(wish.request),
            room=state.quotas.room(pod.metadata.namespace),
        )
        return Foresight(decision, wish, judged, nodes.refusals)
    finally:
        state.wishes.review(pod.uid)
