"""Evaluates which nodes take a pod, and which cards it would get on the best one. Nothing is reserved here.

Both the loop and the extender use this module, so both modes give the same nodes, reasons and cards.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation.allocation import Allocation, Charge, charges
from allocation.ledger import ledger_copy, ledger_view
from allocation.ledger.ledger import Ledger
from allocation.ledger.ledger_view import LedgerView
from allocation.placement import bound_placement, placement, rejection
from allocation.placement.block_max import INFEASIBLE
from allocation.placement.placement import NoPlacement, Placement
from allocation.placement.query import PlacementQuery
from allocation.placement.rejection import UNREGISTERED, Rejection, naming_quota
from allocation.placement.stranding import Stranding
from allocation.quota import Headroom
from allocation.steps import Steps, finish
from scheduler.cycle import static_allocation, without_cards
from scheduler.cycle.lifts import NO_LIFT, Lift
from scheduler.filters.node_filter import FilteredNodes
from scheduler.gpu_requirements import GpuRequirements
from scheduler.objects import Pod
from scheduler.scoring.node_scorer import TotalScores
from scheduler.state.cluster_state import ClusterState


class Evaluation(msgspec.Struct, frozen=True):
    """The nodes that take a pod and the rejections by all others.

    Attributes:
        requirements: the GPU requirements of the pod.
        scores: the nodes that take the pod, with their scores, best first; if the pod has preferences, their totals.
        rejections: the rejections by nodes whose cards do not take the pod.
        values: how good each node that takes the pod is; empty if that is its score (`allocation.placement.placement`).
        allocation: the cards on the best node; None if no node takes the pod, or it requests no GPU.
        charges: what the allocation costs each card.
        nodes: the nodes that passed the filters, and the rejections by those that did not, whatever their cards.
        others: the nodes that were not evaluated, in no order.
        rejection_of_others: why they do not take the pod: they have no cards, or none that is bound to its application.
        preferences: the parts of the totals; None if the pod has no preferences.
        lift: the reservations that were taken to be gone.
        stranding: what the pod costs others; None if that did not decide.
    """

    requirements: GpuRequirements
    scores: dict[str, float]
    rejections: dict[str, Rejection]
    values: Mapping[str, float] = {}
    allocation: Allocation | None = None
    charges: tuple[Charge, ...] = ()
    nodes: FilteredNodes = FilteredNodes([], {})
    others: Collection[str] = ()
    rejection_of_others: Rejection = UNREGISTERED
    preferences: TotalScores | None = None
    lift: Lift = NO_LIFT
    stranding: Stranding | None = None

    def reasons(self) -> frozenset[str]:
        """Return the codes of all rejections."""
        others = (self.rejection_of_others,) if self.others else ()
        return rejection.codes((*self.rejections.values(), *others), self.nodes.rejections.values())


def evaluate(
    state: ClusterState,
    pod: Pod,
    requirements: GpuRequirements,
    headroom: Headroom,
    *,
    among: Sequence[str] | None = None,
    lift: Lift = NO_LIFT,
) -> Steps[Evaluation]:
    """Evaluate the nodes `among`, or every node that may take the pod: first by the filters, then by its cards.

    The reservations `lift` are taken to be gone.
    """
    candidates = state.rejected_nodes.candidates(requirements) if among is None else among
    nodes = yield from state.node_filter.filter(pod, candidates, without=lift)
    view = yield from ledger_view.view(state.ledger, without=lift)
    fitting: Sequence[str] = nodes.fitting
    stranding = state.workload.of(pod, requirements.constraints)
    if not requirements and fitting:
        fitting = yield from without_cards.best_first(state, pod, requirements.constraints, fitting, without=lift)
    cards = yield from evaluate_cards(
        requirements,
        fitting,
        view=view,
        rejected_nodes=state.rejected_nodes.of(requirements, without=lift),
        headroom=headroom,
        stranding=stranding,
    )
    yield
    is_complete = candidates is None or among is not None
    others = frozenset() if is_complete else state.node_cache.names - set(candidates or ())
    bound = requirements.bound
    because = UNREGISTERED if bound is None else bound_placement.not_bound(bound.identity)
    return msgspec.structs.replace(
        cards, nodes=nodes, others=others, rejection_of_others=because, lift=lift, stranding=stranding
    )


def evaluate_cards(
    requirements: GpuRequirements,
    nodes: Sequence[str],
    *,
    view: LedgerView,
    rejected_nodes: Mapping[str, Rejection],
    headroom: Headroom,
    stranding: Stranding | None = None,
) -> Steps[Evaluation]:
    """Evaluate the cards of `nodes` other than `rejected_nodes`, within the `headroom` of the namespace's quotas.

    Which node is best also depends on the `stranding`; None disregards it.
    """
    if not requirements:
        return Evaluation(requirements, dict.fromkeys(nodes, 0.0), {})
    rejected_nodes = {name: rejected_nodes[name] for name in nodes if name in rejected_nodes} if rejected_nodes else {}
    open_ = [name for name in nodes if name not in rejected_nodes] if rejected_nodes else nodes
    if requirements.fixed is not None:
        ledger = view.of(requirements.fixed.node)
        return _evaluate_fixed(requirements, requirements.fixed, open_, rejected_nodes, ledger=ledger)
    query = PlacementQuery(requirements.request, requirements.constraints, headroom, stranding=stranding)
    if requirements.bound is not None:
        bound = bound_placement.place(view, query, requirements.bound, open_)
        return _evaluation(requirements, bound, {**bound.rejections, **rejected_nodes})
    outcome = yield from placement.place(view, query, open_)
    rejections = {**naming_quota(outcome.rejections, requirements.request, headroom), **rejected_nodes}
    return _evaluation(requirements, outcome, rejections)


def _evaluation(
    requirements: GpuRequirements, outcome: Placement | NoPlacement, rejections: dict[str, Rejection]
) -> Evaluation:
    if not isinstance(outcome, Placement):
        return Evaluation(requirements, {}, rejections)
    return Evaluation(
        requirements,
        outcome.scores,
        rejections,
        outcome.values,
        outcome.allocation,
        outcome.charges,
    )


def evaluate_node(
    state: ClusterState, requirements: GpuRequirements, node: str, headroom: Headroom, *, lift: Lift = NO_LIFT
) -> Evaluation:
    """Evaluate the cards of one node without some reservations, in one step."""
    evaluated = evaluate_on(
        ledger_copy.of_node(state.ledger, node, without=lift) if lift else state.ledger,
        requirements,
        node,
        rejected_nodes=state.rejected_nodes.of(requirements, without=lift),
        headroom=headroom,
    )
    return msgspec.structs.replace(evaluated, lift=lift)


def evaluate_on(
    ledger: Ledger,
    requirements: GpuRequirements,
    node: str,
    *,
    rejected_nodes: Mapping[str, Rejection],
    headroom: Headroom,
) -> Evaluation:
    """Evaluate the cards that a node has in a ledger, in one step."""
    view = LedgerView(ledger)
    return finish(evaluate_cards(requirements, [node], view=view, rejected_nodes=rejected_nodes, headroom=headroom))


def scores_of(
    requirements: GpuRequirements,
    nodes: Sequence[str],
    *,
    view: LedgerView,
    rejected_nodes: Mapping[str, Rejection],
    headroom: Headroom,
    stranding: Stranding | None,
) -> Steps[tuple[NDArray[np.float64], dict[str, Rejection]]]:
    """Return the score of each of `nodes`, as `evaluate` computes it, and the rejections.

    A higher score is better, whatever the policy; a node that does not take the pod has `INFEASIBLE`.
    """
    if not requirements.request or requirements.fixed is not None:
        evaluated = yield from evaluate_cards(
            requirements, nodes, view=view, rejected_nodes=rejected_nodes, headroom=headroom
        )
        return np.array([evaluated.scores.get(name, INFEASIBLE) for name in nodes]), evaluated.rejections
    if requirements.bound is not None:
        evaluated = yield from evaluate_cards(
            requirements, nodes, view=view, rejected_nodes=rejected_nodes, headroom=headroom
        )
        policy = requirements.constraints.node_policy
        return placement.values_of(nodes, evaluated.scores, evaluated.values, policy=policy), evaluated.rejections
    query = PlacementQuery(requirements.request, requirements.constraints, headroom, stranding=stranding)
    scores, rejections = yield from placement.scores_of(view, query, nodes)
    rejections = naming_quota(rejections, requirements.request, headroom)
    if rejected_nodes:
        scores[[name in rejected_nodes for name in nodes]] = INFEASIBLE
        rejections |= {name: rejected_nodes[name] for name in nodes if name in rejected_nodes}
    return scores, rejections


def _evaluate_fixed(
    requirements: GpuRequirements,
    fixed: Allocation,
    nodes: Sequence[str],
    rejected_nodes: Mapping[str, Rejection],
    *,
    ledger: Ledger,
) -> Evaluation:
    elsewhere = static_allocation.elsewhere(fixed)
    rejections = {**{name: elsewhere for name in nodes if name != fixed.node}, **rejected_nodes}
    if fixed.node not in nodes:
        return Evaluation(requirements, {}, rejections)
    isolation = requirements.request.isolation
    fixed = static_allocation.isolated(fixed, isolation)
    cost = charges(fixed, requirements.request)
    own_rejection = static_allocation.rejection(fixed, cost, ledger, isolation=isolation)
    if own_rejection is not None:
        return Evaluation(requirements, {}, {**rejections, fixed.node: own_rejection})
    return Evaluation(requirements, {fixed.node: 0.0}, rejections, allocation=fixed, charges=cost)
