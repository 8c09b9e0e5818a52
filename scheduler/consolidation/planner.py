"""Plans which pods to move so that one that fits nowhere fits: as few as possible, each with a place elsewhere.

Nothing is changed or reserved here; the controller, `explain` and `kubectl gpu consolidate` all call these functions.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from allocation import victims
from allocation.allocation import Charge
from allocation.errors import AllocationError
from allocation.ledger.ledger_view import lack
from allocation.quota import Headroom
from allocation.steps import Steps, finish
from scheduler.consolidation.destinations import Destinations, Move, Rankings
from scheduler.consolidation.movable import Movable, MovablePod
from scheduler.cycle import evaluation
from scheduler.cycle.evaluation import Evaluation
from scheduler.gpu_requirements import GpuRequirements
from scheduler.objects import Pod
from scheduler.preemption.node_search import NodeTrial
from scheduler.state.cluster_state import ClusterState

NODES: Final = 32
"""The number of nodes that are tried: those where the least has to become free."""
_CHOICES: Final = 4
"""How many sets of pods of a node are tried, if some of them have no place elsewhere."""
_STEP: Final = 256


class Plan(msgspec.Struct, frozen=True):
    """The pods that are moved for one that fits nowhere.

    Attributes:
        pod: the pod that waits.
        node: where it will fit.
        charges: what it will take of each card there.
        moves: the pods that are moved from there, in this order.
        leaving: the UIDs of the pods of the node that end already.
    """

    pod: Pod
    node: str
    charges: tuple[Charge, ...]
    moves: tuple[Move, ...]
    leaving: frozenset[str] = frozenset()

    @property
    def cost(self) -> tuple[int, int, str]:
        """By which plans are compared: the number of moves, the memory that is moved, and the node."""
        return len(self.moves), sum(each.moved.memory_mib for each in self.moves), self.node


class NoPlan(msgspec.Struct, frozen=True):
    """No pod is moved.

    Attributes:
        why: the reason, without the names of other pods.
    """

    why: str


class Planner:
    """Plans for one pod after another.

    Attributes:
        state: what it plans by.
    """

    def __init__(self, state: ClusterState, movable: Movable) -> None:
        """Plan in `state` by the rules of `movable`."""
        self.state = state
        self._movable = movable

    def plan(self, pod: Pod, *, most_nodes: int = NODES) -> Steps[Plan | NoPlan]:
        """Return the moves after which a pod fits that fits nowhere now; at most `most_nodes` nodes are tried."""
        requirements = self._requirements(pod)
        if isinstance(requirements, NoPlan):
            return requirements
        headroom = self.state.requirements.headroom(pod)
        evaluated = yield from evaluation.evaluate(self.state, pod, requirements, headroom)
        if evaluated.scores:
            return NoPlan("it fits without")
        best, rankings = None, Rankings(self.state)
        nodes = yield from self._nodes(requirements, evaluated)
        for node in itertools.islice(nodes, most_nodes):
            yield
            case = _Case(self.state, pod, requirements, headroom, node)
            found = yield from case.plan(self._movable.on(node, pod), rankings, most_moves=self._movable.most_moves)
            if found is not None and (best is None or found.cost < best.cost):
                best = found
        return best or NoPlan("moving pods elsewhere would not make any node fit")

    def confirm(self, plan: Plan) -> Plan | None:
        """Return a plan by what is true in this step, in which the caller may hold the cards, or None."""
        requirements = self._requirements(plan.pod)
        if isinstance(requirements, NoPlan):
            return None
        uids = (each.moved.pod.uid for each in plan.moves)
        movable = {uid: found for uid in uids if (found := self._movable.pod(uid, plan.pod)) is not None}
        case = _Case(self.state, plan.pod, requirements, self.state.requirements.headroom(plan.pod), plan.node)
        rankings = Rankings(self.state, among={each.node for each in plan.moves})
        return finish(case.plan(movable, rankings, most_moves=len(plan.moves)))

    def _requirements(self, pod: Pod) -> GpuRequirements | NoPlan:
        field = self.state.unsupported(pod)
        if pod.excess or field:
            return NoPlan("it is held until it changes")
        try:
            requirements = self.state.requirements.of(pod)
        except AllocationError as error:
            return NoPlan(str(error))
        reasons = (
            (self.state.holds.of(pod.uid) is not None, "cards are held for it already"),
            (not requirements.request, "it requests no GPU"),
            (requirements.fixed is not None, "it has a static allocation"),
            (requirements.bound is not None, "only the cards that are bound to its application count"),
            (requirements.constraints.card_kind == "instance", "it requests MIG instances"),
            (requirements.is_gathering, "the pods of its gang get nodes together"),
        )
        return next((NoPlan(why) for is_so, why in reasons if is_so), requirements)

    def _nodes(self, requirements: GpuRequirements, evaluated: Evaluation) -> Steps[Iterator[str]]:
        """Return the nodes that may take the pod without others, those first where the least has to become free."""
        nodes = [name for name, each in evaluated.rejections.items() if each.resolvable]
        yield
        nodes += [name for name, each in evaluated.nodes.rejections.items() if each.resolvable]
        lacking = []
        for position, name in enumerate(nodes):
            if position % _STEP == _STEP - 1:
                yield
            lacking.append((lack(self.state.ledger, name, requirements.request), name))
        yield
        return (name for _, name in sorted(lacking))


class _Case:
    """A pod that waits, and a node that is to take it."""

    def __init__(
        self, state: ClusterState, pod: Pod, requirements: GpuRequirements, headroom: Headroom, node: str
    ) -> None:
        self._state = state
        self._pod = pod
        self._headroom = headroom
        self._node = node
        self._leaving = frozenset(
            each.uid
            for each in state.ledger.reservations(node)
            if (running := state.running.get(each.uid)) is not None and running.metadata.deletion_timestamp
        )
        lifted = state.holds.lower_than(state.fair_share.pod_rank(pod))
        rejected_nodes = state.rejected_nodes.lasting(requirements)
        self._trial = NodeTrial(
            state, node, pod, requirements, absent=self._leaving | lifted, rejected_nodes=rejected_nodes
        )

    def plan(self, movable: Mapping[str, MovablePod], rankings: Rankings, *, most_moves: int) -> Steps[Plan | None]:
        """Return the plan with the cheapest of some pods for which there is room on the nodes of `rankings`."""
        homeless = set[str]()
        for _ in range(_CHOICES):
            chosen = yield from self._cheapest([each for uid, each in movable.items() if uid not in homeless])
            if not chosen or len(chosen) > most_moves:
                return None
            destinations = Destinations(self._state, self._node, rankings)
            moves = yield from _moves([movable[uid] for uid in chosen], destinations)
            if not isinstance(moves, str):
                charges = self._trial.place(frozenset(chosen), self._headroom)
                return Plan(self._pod, self._node, charges or (), moves, self._leaving)
            homeless.add(moves)
        return None

    def _cheapest(self, pods: Collection[MovablePod]) -> Steps[list[str]]:
        """Return the UIDs of the cheapest pods without which the pod fits; empty if all do not suffice, or it fits."""
        guards = (each.eligible for each in pods)
        allowed = {each.candidate.budget: each.budget.allowed for each in guards if each.budget is not None}
        chosen = yield from victims.cheapest(
            [(each.eligible.candidate,) for each in pods],
            lambda gone: self._trial.place(gone, self._headroom) is not None,
            victims.Limits(allowed),
        )
        return [each.uid for each in chosen or ()]


def _moves(pods: Collection[MovablePod], destinations: Destinations) -> Steps[tuple[Move, ...] | str]:
    """Return the moves of some pods, the largest first, or the UID of one for which there is no room."""
    moves = []
    for each in sorted(pods, key=lambda each: (-each.memory_mib, each.pod.uid)):
        yield
        move = yield from destinations.take(each)
        if move is None:
            return each.pod.uid
        moves.append(move)
    return tuple(moves)
