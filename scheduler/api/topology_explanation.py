"""Explains which sets of cards a pod has or would have on a node, and why not better ones."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from allocation import names
from allocation.allocation import Allocation
from allocation.errors import AllocationError
from allocation.placement import card_verdicts, set_comparison
from allocation.placement.card_verdicts import Trial
from allocation.placement.query import PlacementQuery
from allocation.reasons import CardReason
from allocation.topology.comparison import Comparison, SetQuality
from allocation.topology.demand import TopologyDemand
from scheduler.api import topology_text
from scheduler.api.topology_types import CardSet, MissingCard, TopologyExplanation, TopologyRequest
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState


def of_trials(
    state: ClusterState, query: PlacementQuery, node: str, trials: Sequence[Trial]
) -> tuple[TopologyExplanation, ...]:
    """Return an explanation for each container that has or would have a set of cards, or that lacks one."""
    demand, row = query.constraints.topology, state.ledger.row(node)
    if demand is None or row is None:
        return ()
    explanations = []
    for trial in trials:
        container = query.request.container(trial.container)
        if container is None or not (trial.chosen or demand.is_required):
            continue
        count = len(trial.chosen) or container.count  # bindings with policy all give a running pod more than it asks
        compared = set_comparison.compare(state.ledger, row, trial, count=count, constraints=query.constraints)
        if compared is not None and _is_about_sets(trial, compared, count):
            request = _request(demand, count)
            explanations.append(_explanation(state, node, trial.container, request, compared))
    return tuple(explanations)


def of_running_pod(state: ClusterState, pod: Pod, allocation: Allocation) -> tuple[TopologyExplanation, ...]:
    """Return the explanations of a pod that has its cards, by what its node reports and what others hold now."""
    annotations = {key: text for key, text in pod.metadata.annotations.items() if key != names.ALLOCATION}
    asked = Pod(msgspec.structs.replace(pod.metadata, annotations=annotations), pod.spec)
    try:
        requirements = state.requirements.of(asked)
    except AllocationError:
        return ()  # its claim or binding was deleted, or the settings changed; what it demanded is not known any more
    query = PlacementQuery(requirements.request, requirements.constraints, bound=requirements.bound)
    trials = card_verdicts.running(state.ledger, query, allocation)
    return of_trials(state, query, allocation.node, trials)


def without_pods(explanation: TopologyExplanation) -> TopologyExplanation:
    """Return the explanation without the names of the pods that hold cards."""
    missing = tuple(MissingCard(card.index) for card in explanation.missing)
    text = topology_text.text(explanation.request, explanation.chosen, explanation.better, missing, explanation.nearest)
    return msgspec.structs.replace(explanation, missing=missing, text=text)


def _is_about_sets(trial: Trial, compared: Comparison, count: int) -> bool:
    """Whether the connections of cards matter to the result; too few cards need no explanation by sets."""
    if compared.chosen is not None or CardReason.CardTopologyMismatch in trial.verdicts:
        return True
    return compared.better is None and sum(trial.usable) >= count


def _request(demand: TopologyDemand, cards: int) -> TopologyRequest:
    return TopologyRequest(
        cards,
        demand.policy,
        demand.mode,
        demand.min_bandwidth_gbps,
        demand.max_tier,
        demand.prefer_ids,
        demand.accepts_unknown,
        demand.source,
    )


def _explanation(
    state: ClusterState, node: str, container: str, request: TopologyRequest, compared: Comparison
) -> TopologyExplanation:
    chosen, better = _card_set(compared.chosen), _card_set(compared.better)
    holders = _holders(state, node) if compared.missing else {}
    missing = tuple(MissingCard(index, tuple(holders.get(index, ()))) for index in compared.missing)
    nearest = _card_set(compared.nearest)
    text = topology_text.text(request, chosen, better, missing, nearest)
    return TopologyExplanation(container, request, chosen, better, missing, text, nearest)


def _card_set(quality: SetQuality | None) -> CardSet | None:
    if quality is None:
        return None
    return CardSet(quality.ids, quality.bandwidth_gbps, quality.tier, quality.islands, quality.island_cards)


def _holders(state: ClusterState, node: str) -> dict[int, list[str]]:
    """Return the pods that hold each undivided card of a node, by its index."""
    inventory = state.ledger.inventory(node)
    cards = inventory.cards if inventory is not None else ()
    index_of = {card.uuid: card.index for card in cards if card.is_undivided}
    holders: defaultdict[int, list[str]] = defaultdict(list)
    for name, uuid in sorted(_held(state, node)):
        if uuid in index_of:
            holders[index_of[uuid]].append(name)
    return holders


def _held(state: ClusterState, node: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each pod that holds cards of a node, with the UUID of each card."""
    for reservation in state.ledger.reservations(node):
        name = state.node_cache.name_of(reservation.uid)
        if name:
            for charge in reservation.charges:
                yield name, charge.uuid
