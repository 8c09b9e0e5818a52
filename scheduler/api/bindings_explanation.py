"""Explains which cards are bound to the application of a pod, who has them, and why other bindings do not count."""

from typing import Final

import msgspec

from allocation import names
from allocation.bindings import grants
from allocation.bindings.binding import AppIdentity
from allocation.bindings.bound_cards import BoundCard, ConsumePolicy, consume_policy
from allocation.errors import AllocationError
from allocation.request import read_request
from scheduler.api.bindings_types import BindingsExplanation, BoundCardExplanation, OtherBinding
from scheduler.gpu_requirements import WaitingPodError
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState

_OTHERS: Final = 20


def bindings(state: ClusterState, pod: Pod) -> BindingsExplanation | None:
    """Return the cards that are bound to the application of `pod` now; None if GPUBindings do not concern the pod.

    They do not if it requests no GPU, belongs to no application or brings its allocation.
    """
    meta = pod.metadata
    granted = state.bindings.granted(meta.labels, meta.namespace)
    if granted is None or granted.identity is None or not _is_concerned(state, pod):
        return None
    identity = granted.identity
    policy: ConsumePolicy = (
        "single" if names.CLAIM in meta.annotations else consume_policy(meta.labels, meta.annotations)
    )
    explained = BindingsExplanation(identity.app, identity.owner, identity.namespace, policy)
    try:
        bound = state.bindings.cards(granted, policy=policy, other_than=(pod.uid,))
    except WaitingPodError:
        return msgspec.structs.replace(explained, others=_others(state, pod, identity))
    return msgspec.structs.replace(explained, cards=tuple(_card(state, each) for each in bound.cards))


def hints(explained: BindingsExplanation | None) -> tuple[str, ...]:
    """Return what to do about an application without cards."""
    if explained is None or explained.cards:
        return ()
    owner = f", owner {explained.owner}" if explained.owner else ""
    hint = (
        f"the application's service has to write a GPUBinding with appName {explained.app}{owner} and namespace"
        f" {explained.namespace}, whose podSelector selects the pod; 'kubectl get gpubindings' lists the existing ones"
    )
    return (hint,)


def _is_concerned(state: ClusterState, pod: Pod) -> bool:
    if not state.bindings.is_on or pod.finished or not state.is_ours(pod):
        return False
    if names.ALLOCATION in pod.metadata.annotations and not pod.spec.node_name:
        return False
    try:
        return bool(read_request(pod.spec, state.settings))
    except AllocationError:
        return False


def _card(state: ClusterState, card: BoundCard) -> BoundCardExplanation:
    position = state.ledger.position(card.uuid)
    return BoundCardExplanation(
        uuid=card.uuid,
        node=state.ledger.node(position[0]) if position is not None else "",
        binding=card.grant.binding,
        share_mode=card.mode,
        memory_mib=card.grant.memory_mib,
        consumed_by=card.consumers,
    )


def _others(state: ClusterState, pod: Pod, identity: AppIdentity) -> tuple[OtherBinding, ...]:
    """Return the bindings of applications of the same name, those that lack the least first."""
    found = [
        OtherBinding(
            each.name,
            each.spec.uuid,
            grants.mismatches(
                each.spec,
                identity,
                pod.metadata.labels,
                require_namespace=state.bindings.settings.require_namespace,
            ),
        )
        for each in state.bindings
        if each.spec.app_name == identity.app
    ]
    return tuple(sorted(found, key=lambda each: (len(each.why), each.name))[:_OTHERS])
