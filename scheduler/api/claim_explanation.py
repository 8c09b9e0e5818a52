"""Explains the PersistentVolumeClaims of a pod that has no node yet: what each waits for, and where it can be used."""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from allocation.label_selector import Expression
from scheduler.api.explanation_types import ClaimExplanation, ClaimState
from scheduler.cycle.result import Scheduled, ScheduleResult
from scheduler.objects import Pod
from scheduler.pod_spec.constraints import NodeSelector, Term
from scheduler.state.cluster_state import ClusterState
from scheduler.volumes import pod_claims
from scheduler.volumes.bindings import ClaimKey
from scheduler.volumes.compiled_volume import CompiledVolume
from scheduler.volumes.objects import SELECTED_NODE, Claim
from scheduler.volumes.planned_pod import PlannedPod

_NAMED: Final = 5
"""How many alternatives the text of a volume's node affinity has."""
_SYMBOLS: Final = {"Gt": ">", "Lt": "<"}


def claims(state: ClusterState, pod: Pod, decision: ScheduleResult) -> tuple[ClaimExplanation, ...]:
    """Return an explanation for each claim of `pod`, by the volumes that mount them; none if kube-scheduler has it."""
    if state.is_external(pod):
        return ()
    planned = pod.claims if isinstance(pod, PlannedPod) else {}
    matches, node = _chosen(state, pod, decision)
    explanations = {}
    for volume in pod.spec.volumes:
        key = pod_claims.key_of(volume, pod)
        if key is None or key in explanations:
            continue
        existing = state.volumes.objects.claims.get(key)
        claim = existing or planned.get(key)
        explanation = _explain(state, pod, key, claim, is_ephemeral=volume.ephemeral is not None and claim is existing)
        if node and explanation.state == "unbound":
            explanation = msgspec.structs.replace(explanation, volume=matches.get(key, ""), usable_on=node)
        explanations[key] = msgspec.structs.replace(explanation, exists=existing is not None)
    return tuple(explanations.values())


def _chosen(state: ClusterState, pod: Pod, decision: ScheduleResult) -> tuple[Mapping[ClaimKey, str], str]:
    """Return the PersistentVolumes that unbound claims would get, and the node; nothing if the pod does not fit."""
    if not isinstance(decision, Scheduled):
        return {}, ""
    bindings = state.node_filter.volume_bindings(pod, decision.node)
    matches = bindings.matches if bindings is not None else ()
    return {match.claim: match.volume for match in matches}, decision.node


def _explain(
    state: ClusterState, pod: Pod, key: ClaimKey, claim: Claim | None, *, is_ephemeral: bool
) -> ClaimExplanation:
    if claim is None:
        return ClaimExplanation(key.name, "missing")
    volume = state.volumes.objects.volumes.get(claim.spec.volume_name)
    state_of_claim = _state(state, pod, claim, is_ephemeral=is_ephemeral)
    if state_of_claim == "provisioning":
        usable_on = claim.metadata.annotations[SELECTED_NODE]
    else:
        usable_on = _usable_on(volume) if volume is not None else ""
    return ClaimExplanation(key.name, state_of_claim, claim.storage_class, claim.spec.volume_name, usable_on)


def _state(state: ClusterState, pod: Pod, claim: Claim, *, is_ephemeral: bool) -> ClaimState:
    """Return the state of a claim, by the tests of `scheduler.volumes.pod_claims` in their order."""
    metadata = claim.metadata
    if claim.status.phase == "Lost":
        return "lost"
    if metadata.deletion_timestamp is not None:
        return "deleting"
    if is_ephemeral and not any(owner.uid == pod.uid for owner in metadata.owner_references):
        return "foreign"
    if claim.is_bound:
        return "bound"
    if claim.spec.volume_name or not state.volumes.objects.is_delayed(claim):
        return "waiting"
    return "provisioning" if SELECTED_NODE in metadata.annotations else "unbound"


def _usable_on(volume: CompiledVolume) -> str:
    """Return the labels of the nodes that can use a volume, or an empty string if every node can."""
    affinity = volume.source.spec.node_affinity
    parts = [f"{zone.key} in ({','.join(zone.values)})" for zone in volume.zones]
    if affinity is not None and affinity.required is not None:
        parts.append(_selector(affinity.required))
    return " and ".join(parts)


def _selector(selector: NodeSelector) -> str:
    terms = [" and ".join(_expressions(term)) for term in selector.node_selector_terms]
    shown = " or ".join(terms[:_NAMED])
    return f"{shown} or …" if len(terms) > _NAMED else shown


def _expressions(term: Term) -> Iterator[str]:
    """Return expressions in the syntax of kubectl's label selectors."""
    for each in (*term.match_expressions, *term.match_fields):
        yield _expression(each)


def _expression(expression: Expression) -> str:
    key, values = expression.key, expression.values
    listed = ",".join(values[:_NAMED]) + (",…" if len(values) > _NAMED else "")
    match expression.operator:
        case "In" if len(values) == 1:
            return f"{key}={listed}"
        case "In" | "NotIn":
            return f"{key} {expression.operator.lower()} ({listed})"
        case "Exists":
            return key
        case "DoesNotExist":
            return f"!{key}"
        case operator:
            return f"{key}{_SYMBOLS.get(operator, operator)}{listed}"
