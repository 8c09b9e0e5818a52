"""Orders the nodes that take a pod by its preferences, after an evaluation of every node."""

import msgspec
import numpy as np

from allocation.allocation import Allocation, charges
from allocation.ledger import ledger_copy
from allocation.ledger.ledger import Ledger
from allocation.placement.placement import place_on, values_of
from allocation.placement.query import PlacementQuery
from allocation.quota import Headroom
from allocation.steps import Steps
from scheduler.cycle.evaluation import Evaluation
from scheduler.filters.node_cache import NodeCache
from scheduler.objects import Pod
from scheduler.scoring.candidates import NodeList
from scheduler.scoring.node_scorer import NodeScorer, best_first


def prefer(
    pod: Pod,
    evaluated: Evaluation,
    *,
    scorer: NodeScorer,
    node_cache: NodeCache,
    ledger: Ledger,
    headroom: Headroom,
) -> Steps[Evaluation]:
    """Return the evaluation with the totals of cards and preferences as scores, and cards on the node of the best one.

    Of equal totals, the node comes first that would come first without preferences. A pod whose static allocation names
    the node, whose application owns the cards, or that has no preferences, keeps its evaluation.
    """
    requirements = evaluated.requirements
    is_free = requirements.fixed is None and requirements.bound is None
    preferences = scorer.preferences(pod) if evaluated.scores and is_free else ()
    if not preferences:
        return evaluated
    # Without cards, the evaluation has the nodes in the order of preference.
    names = [name for name in evaluated.scores if name in node_cache]
    values = None
    if requirements.request:
        names.sort()
        values = values_of(names, evaluated.scores, evaluated.values, policy=requirements.constraints.node_policy)
    nodes = NodeList([node_cache.nodes[name] for name in names])
    scores = yield from scorer.score(pod, preferences, nodes)
    total = scorer.total(names, values, scores)
    otherwise = values if values is not None else -np.arange(float(len(names)))
    ordered = {names[place]: total.totals.item(place) for place in best_first(total.totals, otherwise)}
    evaluated = msgspec.structs.replace(evaluated, scores=ordered, preferences=total)
    if not requirements.request:
        return evaluated
    query = PlacementQuery(requirements.request, requirements.constraints, headroom)
    for name in ordered:
        cards = ledger_copy.of_node(ledger, name, without=evaluated.lift) if evaluated.lift else ledger
        outcome = place_on(cards, query, name)
        if isinstance(outcome, Allocation):
            costs = charges(outcome, requirements.request)
            return msgspec.structs.replace(evaluated, allocation=outcome, charges=costs)
        yield  # the node changed after its evaluation
    return evaluated
