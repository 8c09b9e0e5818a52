"""Explains why a pod runs on its node or is pending, with the evaluation of every node and card.

This module decides nothing: it presents the results of the scheduling cycle.
"""

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from allocation.allocation import Allocation
from allocation.errors import AllocationError
from allocation.reasons import PodReason
from allocation.steps import Steps
from scheduler.api import (
    bindings_explanation,
    claim_explanation,
    gang_explanation,
    gpu_claim_explanation,
    node_explanation,
    policy_explanation,
    queue_explanation,
    resize_explanation,
    topology_explanation,
)
from scheduler.api.evictions import Evictions
from scheduler.api.explanation_types import Explanation, ReasonGroup, RequestedCards, Share
from scheduler.api.gang_explanation import Rehearsed
from scheduler.cycle import messages, remedies
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.cycle.search import Attempt
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from scheduler.state.running_allocation import running_allocation

MANY: Final = 500
"""The explanation of a cluster with more nodes has only the cards of the chosen node by default."""

_NODES_A_STEP: Final = 64


def explain(
    cycle: SchedulingCycle,
    pod: Pod,
    *,
    evictions: Evictions,
    rehearsed: Rehearsed = None,
    cards_of: Collection[str] | None = None,
) -> Steps[Explanation]:
    """Return why a pod runs on its node or is pending, with the cards of the nodes `cards_of`.

    `evictions` chooses the pods that a pending pod would preempt, and those that could be moved for it. `rehearsed` is
    what a decision about its gang would do (`scheduler.api.gang_explanation`).

    If `cards_of` is None, the explanation has the cards of all nodes, or in a cluster with more than `MANY` nodes only
    those of the chosen node: 1,000 nodes of eight cards take 0.15 s.
    """
    explanation = _without_decision(cycle.state, pod)
    if explanation is not None:
        return explanation
    attempt = yield from cycle.dry_run(pod)
    return (yield from of_dry_run(evictions, pod, attempt, rehearsed=rehearsed, cards_of=cards_of))


def of_external(state: ClusterState, pod: Pod, why: str) -> Explanation:
    """Return the explanation of a pod of kube-scheduler that waits whatever the nodes have: `why`."""
    return Explanation(
        namespace=pod.metadata.namespace,
        pod=pod.metadata.name,
        outcome="waits",
        answer=f"waits: {why}",
        note=why,
        node=state.node_cache.node_of(pod.uid),
        claim=gpu_claim_explanation.gpu_claim(state, pod),
        gpu_queue=queue_explanation.queue(state, pod),
        gang=gang_explanation.gang_of(state, pod),
    )


def of_dry_run(
    evictions: Evictions,
    pod: Pod,
    attempt: Attempt,
    *,
    rehearsed: Rehearsed = None,
    cards_of: Collection[str] | None = None,
) -> Steps[Explanation]:
    """Return the explanation of a dry run; for `evictions`, `rehearsed` and `cards_of` see `explain`."""
    state, decision, evaluation = evictions.state, attempt.result, attempt.evaluation
    if evaluation is not None:
        decision = gang_explanation.result(state, pod, decision, rehearsed)
    if cards_of is None and len(state.node_cache) > MANY:
        cards_of = (decision.node,) if isinstance(decision, Scheduled) else ()
    explanation = Explanation(
        namespace=pod.metadata.namespace,
        pod=pod.metadata.name,
        outcome="held",
        answer=decision.note,
        note=decision.note,
        claim=gpu_claim_explanation.gpu_claim(state, pod),
        bindings=bindings_explanation.bindings(state, pod),
        queue=state.queue.position(pod.uid),
        gpu_queue=queue_explanation.queue(state, pod),
        gang=gang_explanation.gang_of(state, pod, rehearsed),
        hints=_handed_over_hints(state, pod),
    )
    if evaluation is None:
        if isinstance(decision, Unschedulable) and not decision.is_held:
            hints = queue_explanation.hints(state, pod, decision.reasons)
            explanation = _without_nodes(explanation, hints)
            if PodReason.PodQuotaNotFit in decision.reasons:
                return (yield from _with_evictions(explanation, evictions, pod))
        return explanation
    requirements = evaluation.requirements
    nodes = []
    yield
    for node in node_explanation.nodes(state, pod, decision, evaluation, cards_of=cards_of):
        nodes.append(node)
        if len(nodes) % _NODES_A_STEP == 0:
            yield
    resolvable = {node.name for node in nodes if node.resolvable}
    groups = yield from messages.by_reason(evaluation.rejections, evaluation.nodes.rejections)
    reasons = tuple(
        ReasonGroup(group.reason, not resolvable.isdisjoint(group.nodes), tuple(group.nodes), group.code)
        for group in groups
    )
    asks = tuple(
        RequestedCards(
            each.name,
            each.count,
            each.memory_mib,
            each.memory_percent,
            each.cores,
            each.whole,
            each.tflops,
            memory_limit_mib=each.memory_limit_mib,
            cores_limit=each.cores_limit,
        )
        for each in requirements.request.gpu_containers
    )
    explanation = msgspec.structs.replace(
        explanation,
        asks=asks,
        quota=messages.quota_of(evaluation.rejections),
        policy=policy_explanation.policy(
            requirements,
            has_preferences=evaluation.preferences is not None,
            counts_stranded=evaluation.stranding is not None,
        ),
        resolvable=bool(resolvable),
        nodes=tuple(nodes),
        reasons=reasons,
        claims=claim_explanation.claims(state, pod, decision),
    )
    if isinstance(decision, Scheduled):
        shares = _shares(decision.allocation) if decision.allocation is not None else ()
        answer = f"would go to {decision.node}{_cards(shares)}"
        topology = next((node.topology for node in nodes if node.chosen), ())
        return msgspec.structs.replace(
            explanation, outcome="fits", answer=answer, node=decision.node, shares=shares, topology=topology
        )
    hints = (
        *explanation.hints,
        *remedies.of(requirements.request, requirements.constraints, ledger=state.ledger, reasons=decision.reasons),
        *_selector_hints(state, pod),
    )
    explanation = msgspec.structs.replace(explanation, outcome="waits", answer=f"waits: {decision.note}", hints=hints)
    return (yield from _with_evictions(explanation, evictions, pod)) if resolvable else explanation


def _selector_hints(state: ClusterState, pod: Pod) -> Iterator[str]:
    """Yield a hint for each label of `spec.nodeSelector` that no node has; what nodes have, not every user may see."""
    for key, value in sorted(pod.spec.node_selector.items()):
        if not state.node_cache.has_label(key, value):
            yield f"no node has label {key}: {value} of spec.nodeSelector; see 'kubectl get nodes -L {key}'"


def _with_evictions(explanation: Explanation, evictions: Evictions, pod: Pod) -> Steps[Explanation]:
    """Return the explanation of a pod that waits, with what evictions would do for it."""
    preemption, consolidation = yield from evictions.for_pod(pod)
    return msgspec.structs.replace(explanation, preemption=preemption, consolidation=consolidation)


def _without_nodes(explanation: Explanation, hints: tuple[str, ...]) -> Explanation:
    """Return the explanation of a pod that waits for its GpuQueue, its GpuClaim or a GPUBinding: no node is evaluated.

    `hints` are those about its queue.
    """
    hints = hints or gpu_claim_explanation.hints(explanation.claim, namespace=explanation.namespace)
    hints = hints or bindings_explanation.hints(explanation.bindings)
    answer = f"waits: {explanation.note}"
    return msgspec.structs.replace(explanation, outcome="waits", answer=answer, hints=(*explanation.hints, *hints))


def _handed_over_hints(state: ClusterState, pod: Pod) -> tuple[str, ...]:
    """Return who else decides about a pod that is handed over."""
    if not state.is_handed_over(pod):
        return ()
    shown = f"'kubectl -n {pod.metadata.namespace} describe pod {pod.metadata.name}' has its reasons"
    return (f"kube-scheduler places the pod, because of its resourceClaims, which are not evaluated here: {shown}",)


def _without_decision(state: ClusterState, pod: Pod) -> Explanation | None:
    """Return the explanation of a pod that the scheduler would not schedule now, or None for one that it would."""
    blank = Explanation(
        namespace=pod.metadata.namespace,
        pod=pod.metadata.name,
        outcome="foreign",
        answer="",
        claim=gpu_claim_explanation.gpu_claim(state, pod),
        bindings=bindings_explanation.bindings(state, pod),
        gang=gang_explanation.gang_of(state, pod),
    )
    if pod.finished:
        answer = f"is finished ({pod.status.phase}) and uses no cards"
        return msgspec.structs.replace(blank, outcome="finished", answer=answer, node=pod.spec.node_name)
    if pod.spec.node_name:
        return _bound(state, pod, blank)
    node = state.node_cache.node_of(pod.uid)
    if node:
        reservation = state.ledger.reservation(pod.uid)
        shares = tuple(
            Share("", charge.uuid, _index(state, node, charge.uuid), charge.memory_mib, charge.cores)
            for charge in (reservation.charges if reservation is not None else ())
        )
        answer = f"is being bound to {node}{_cards(shares)}"
        return msgspec.structs.replace(
            blank,
            outcome="binding",
            answer=answer,
            node=node,
            shares=shares,
            gpu_queue=queue_explanation.queue(state, pod),
        )
    if pod.metadata.deletion_timestamp:
        return msgspec.structs.replace(blank, outcome="finished", answer="is being deleted and will not be scheduled")
    if not state.is_ours(pod):
        names = " or ".join(sorted(state.names))
        answer = (
            f"is left to another scheduler: its schedulerName is {pod.spec.scheduler_name or 'default-scheduler'}, not"
            f" {names}; in a namespace labelled gpu.scheduling/injection=enabled, admission sets it when a pod that"
            " asks for a GPU is created"
        )
        return msgspec.structs.replace(blank, answer=answer)
    if pod.spec.scheduling_gates:
        answer = (
            f"waits for its scheduling gates {pod.spec.gates}: the user or controller that set spec.schedulingGates"
            " must remove them"
        )
        return msgspec.structs.replace(blank, outcome="gated", answer=answer)
    return None


def _bound(state: ClusterState, pod: Pod, blank: Explanation) -> Explanation:
    node = pod.spec.node_name
    explanation = msgspec.structs.replace(blank, outcome="bound", node=node)
    try:
        allocated = running_allocation(pod, state.settings)
    except AllocationError as error:
        answer = f"runs uncounted on {node}: Tranche gives it no GPU, and the node takes no new GPU pods: {error}"
        return msgspec.structs.replace(explanation, answer=answer)
    if allocated is None:
        return msgspec.structs.replace(explanation, answer=f"is bound to {node}; it asks for no GPU")
    shares = _shares(allocated[0])
    answer = (
        f"is bound to {node}{_cards(shares)}; its environment reads the annotations that were written with the Binding"
    )
    claim = gpu_claim_explanation.gpu_claim(state, pod, allocated[0].claim)
    topology = topology_explanation.of_running_pod(state, pod, allocated[0])
    return msgspec.structs.replace(
        explanation,
        answer=answer,
        shares=shares,
        claim=claim,
        resize=resize_explanation.resize(state, pod),
        topology=topology,
        gpu_queue=queue_explanation.queue(state, pod),
    )


def _index(state: ClusterState, node: str, uuid: str) -> int:
    inventory = state.ledger.inventory(node)
    cards = inventory.cards if inventory is not None else ()
    return next((card.index for card in cards if card.uuid == uuid), -1)


def _shares(allocation: Allocation) -> tuple[Share, ...]:
    return tuple(
        Share(
            name,
            share.uuid,
            share.index,
            share.memory_mib,
            share.cores,
            memory_limit_mib=share.memory_limit_mib,
            cores_limit=share.cores_limit,
        )
        for name, shares in allocation.containers.items()
        for share in shares
    )


def _cards(shares: tuple[Share, ...]) -> str:
    """Return `, cards 0,1` with each card once, or an empty string without shares."""
    indexes = list(dict.fromkeys(share.index for share in shares))
    if not indexes:
        return ""
    return f", card{'s' if len(indexes) > 1 else ''} {','.join(map(str, indexes))}"
