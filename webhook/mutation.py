"""Mutates a GPU pod: routes it to the scheduler, completes its resources, and sets its environment by reference.

The mutation is a pure, idempotent function of the pod and its creator, so the API server may invoke admission again
after another webhook has added a container.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from allocation import burst, limits, names, precedence
from allocation.allocation import Allocation
from allocation.bindings.granted import Granted
from allocation.claim import ClaimSpec
from allocation.constraints import read_constraints
from allocation.isolation import Isolation
from allocation.precedence import Decision
from allocation.request import PodRequest, ignored_percentages, read_request, requests_gpu
from allocation.settings import AllocationSettings
from webhook import (
    bound_pod,
    claimed_pod,
    environment,
    isolations,
    near_misses,
    resources,
    resreq,
    security,
    static_allocation,
)
from webhook.claimed_pod import NamedClaim
from webhook.membership import Membership
from webhook.patch import Operation, add, pointer
from webhook.quotas import Quotas
from webhook.resources import GpuContainer
from webhook.review import ForbiddenPodError, Pod, PodContainer, PodSpec
from webhook.settings import WebhookSettings

_DEFAULT_SCHEDULERS = ("", "default-scheduler")
MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a static pod, which a kubelet reads from a file and mirrors to the API."""
_NODE_USER = "system:node:"
OPT_OUT_LABELS = (names.INJECTION_LABEL, names.HAMI_WEBHOOK_LABEL)
"""The labels of a pod that decide whether admission prepares it."""


class Mutation(msgspec.Struct, frozen=True):
    """The changes to a pod that may be created.

    Attributes:
        operations: the patch; empty where the pod is not managed, or is prepared already.
        warnings: warnings for the pod's creator.
        has_gpus: whether the pod is managed and gets cards.
    """

    operations: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    has_gpus: bool = False

    @property
    def is_ours(self) -> bool:
        """Whether the pod is managed, also if it is prepared already."""
        return self.has_gpus or bool(self.operations or self.warnings)


def claim_name(pod: Pod, *, username: str, settings: WebhookSettings) -> str | None:
    """Return the name of the GpuClaim that `mutate` needs for `pod`, or None where it needs none.

    Raises:
        InvalidFieldError: no object can have this name.
    """
    annotations = pod.metadata.annotations
    if annotations is None or names.CLAIM not in annotations or _skip_reason(pod, username=username, settings=settings):
        return None
    return claimed_pod.read_name(annotations)


def mutate(
    pod: Pod,
    *,
    username: str,
    allocation: AllocationSettings,
    settings: WebhookSettings,
    quotas: Quotas,
    claim: ClaimSpec | None,
    bound: Granted | None = None,
    membership: Membership | None = None,
    isolation: str = "",
) -> Mutation:
    """Return the mutation of `pod`, which `username` creates in a namespace with `quotas`.

    `claim` is the GpuClaim that `claim_name` returns the name of; None where it does not exist, or the pod needs none.
    `bound` is what GPUBindings say about the pod, `membership` the GpuQueue that it names, and `isolation` the label
    of its namespace for pods that choose none.

    Raises:
        ForbiddenPodError: the pod may not be created as it is.
        AllocationError: a field of the pod holds an invalid value.
    """
    if not pod.spec.containers:
        raise ForbiddenPodError("pod has no containers: add one")
    annotations = pod.metadata.annotations or {}
    static = static_allocation.read(annotations, username=username, trusted=settings.trusted)
    skip_reason = _skip_reason(pod, username=username, settings=settings)
    if skip_reason and static is not None:
        raise ForbiddenPodError(f"the pod has a static allocation, but {skip_reason}: remove one or the other")
    if skip_reason:
        return Mutation()
    pod, required = _with_requirement(pod, membership, allocation)
    claimed = claimed_pod.named(annotations, claim)
    if claimed or static is not None or any(requests_gpu(each, allocation) for each in _containers(pod.spec)):
        _check_size(pod)
    decision = precedence.decide(
        static,
        bound,
        claim=claimed.name if claimed is not None else "",
        devices=claimed.spec.devices if claimed is not None else None,
    )
    _check_limits(annotations, decision)
    stated = pod.spec
    pod, claimed, amount = _with_bound_memory(pod, claimed, decision, allocation)
    prepared = _prepare(pod, decision.static, claimed, settings=allocation, quotas=quotas)
    if not prepared.containers:
        return _without_gpus(pod, required, membership, prepared.warnings)
    _forbid(limits.excess_of_gpu_containers(len(prepared.containers)))
    chosen = isolations.choose(annotations, claimed, of_namespace=isolation, settings=settings)
    isolations.check(chosen, claimed, containers=len(prepared.containers))
    if prepared.placed is not None:
        # What the scheduler could never place is refused now: unreadable constraints, and more than the quotas allow.
        constraints = read_constraints(annotations, allocation)
        if prepared.placed.is_bursting and (constraints.modes == "mig" or chosen is Isolation.MIG):
            asking = names.MODE if constraints.modes == "mig" else f"isolation {chosen}"
            burst.refuse_if_set(annotations, because=f"{asking} asks for MIG instances, whose size is fixed")
        quotas.check(
            prepared.placed, allocation, is_bound=decision.granted is not None, is_instance=decision.is_instance
        )
    _check_security(pod.spec)
    _check_node(pod.spec, static)
    operations = [
        *(required or ()),
        *_spec_operations(pod.spec, allocation, settings),
        *claimed_pod.node_selector(pod.spec, claimed),
        *isolations.annotation_operations(pod.metadata.annotations, chosen),
        *_annotation_operations(annotations, prepared.static, claimed, chosen),
        *bound_pod.annotation_operations(annotations, decision.granted),
        *bound_pod.resource_operations(stated, allocation, amount=amount),
    ]
    warnings = [
        *_admitted(membership),
        *prepared.warnings,
        *_grace_warnings(pod.spec, settings),
        *isolations.warnings(pod.spec, prepared.containers, chosen),
        *bound_pod.warnings(stated, annotations, decision, allocation, amount=amount),
    ]
    for changes, more in _container_changes(stated, prepared.containers, chosen):
        operations += changes
        warnings += more
    return Mutation(tuple(operations), tuple(warnings), has_gpus=True)


def _check_limits(annotations: Mapping[str, str], decision: Decision) -> None:
    """Refuse limits of a pod's own where a static allocation, a claim or a binding says what the pod has of each card.

    Raises:
        AllocationError: the pod has some.
    """
    if decision.static is not None:
        burst.refuse_if_set(annotations, because=f"annotation {names.ALLOCATION} says what the pod has of each card")
    if decision.granted is not None:
        burst.refuse_if_set(annotations, because="GPUBindings say what the pod's application has of each card")
    if names.CLAIM in annotations:
        burst.refuse_if_set(annotations, because="the pod's GpuClaim says what it has of each card")


def _with_requirement(
    pod: Pod, membership: Membership | None, settings: AllocationSettings
) -> tuple[Pod, tuple[Operation, ...] | None]:
    """Return the pod with what it requires in one line as resources, and the operations that make the same change.

    The operations are None where it requires nothing in one line, and empty where its resources say the same already.
    """
    required = resreq.of_pod(pod, membership, settings)
    if required is None:
        return pod, None
    changed = Pod(pod.metadata, resreq.with_requirement(pod.spec, required, settings))
    return changed, tuple(resreq.operations(pod.spec, required, settings))


def _with_bound_memory(
    pod: Pod, claimed: NamedClaim | None, decision: Decision, settings: AllocationSettings
) -> tuple[Pod, NamedClaim | None, str]:
    """Return the pod and its claim with the memory that GPUBindings set, and this amount; empty if they set none."""
    amount = bound_pod.memory(decision, settings)
    if decision.memory_mib is None or not amount:
        return pod, claimed, ""
    pod = Pod(pod.metadata, bound_pod.with_memory(pod.spec, settings, amount=amount))
    return pod, claimed.bound(decision.memory_mib) if claimed is not None else None, amount


def _without_gpus(
    pod: Pod, required: tuple[Operation, ...] | None, membership: Membership | None, warnings: tuple[str, ...]
) -> Mutation:
    """Return the mutation of a pod without a GPU, which is ours if what it requires was written in one line."""
    if required is None:
        return Mutation(warnings=warnings)
    return Mutation((*required, *_scheduler(pod.spec, names.SCHEDULER_NAME)), (*_admitted(membership), *warnings))


def _admitted(membership: Membership | None) -> tuple[str, ...]:
    """Return the warnings about the queue of a pod.

    Raises:
        ForbiddenPodError: the queue is not for the pod's namespace.
    """
    if membership is None:
        return ()
    membership.check()
    return membership.warnings


def _skip_reason(pod: Pod, *, username: str, settings: WebhookSettings) -> str:
    """Return the reason why admission leaves a pod unchanged, or an empty string."""
    labels = pod.metadata.labels or {}
    if labels.get(names.INJECTION_LABEL) == "disabled":
        return f"label {names.INJECTION_LABEL}: disabled opts it out"
    if labels.get(names.HAMI_WEBHOOK_LABEL) == "ignore":
        return f"label {names.HAMI_WEBHOOK_LABEL}: ignore opts it out"
    scheduler = pod.spec.scheduler_name or ""
    if scheduler not in (*_DEFAULT_SCHEDULERS, *names.SCHEDULER_NAMES, *settings.aliases, *settings.takeover):
        return f"spec.schedulerName {scheduler!r} selects another scheduler"
    if MIRROR in (pod.metadata.annotations or {}) and username.startswith(_NODE_USER):
        # Its kubelet runs it even if it is refused here. Once in the API, it at least closes its node for placements.
        return "it is the mirror of a static pod"
    return ""


class _Prepared(msgspec.Struct, frozen=True):
    """A pod as its claim, its static allocation or its containers make it.

    Attributes:
        containers: its GPU containers by name.
        static: its static allocation; None if it has none.
        placed: what the scheduler will place; None with a static allocation.
        warnings: warnings for the pod's creator.
    """

    containers: Mapping[str, GpuContainer]
    static: Allocation | None = None
    placed: PodRequest | None = None
    warnings: tuple[str, ...] = ()


def _prepare(
    pod: Pod, static: Allocation | None, claimed: NamedClaim | None, *, settings: AllocationSettings, quotas: Quotas
) -> _Prepared:
    """Prepare a pod by its claim, its static allocation or both, or else by what its containers request."""
    if claimed is not None:
        return _from_claim(pod, static, claimed, settings=settings)
    if static is not None:
        return _Prepared(static_allocation.gpu_containers(pod, static, settings), static)
    return _from_request(pod, settings=settings, quotas=quotas)


def _from_claim(pod: Pod, static: Allocation | None, claimed: NamedClaim, *, settings: AllocationSettings) -> _Prepared:
    near_misses.refuse(pod.spec, settings)
    if static is not None:
        containers = static_allocation.named_containers(pod, static, settings)
        prepared = claimed_pod.prepare(pod, claimed, settings, gpu_containers=containers)
        return _Prepared(prepared.containers, static, warnings=prepared.warnings)
    prepared = claimed_pod.prepare(pod, claimed, settings)
    return _Prepared(prepared.containers, placed=prepared.request, warnings=prepared.warnings)


def _from_request(pod: Pod, *, settings: AllocationSettings, quotas: Quotas) -> _Prepared:
    """Prepare a pod that the scheduler will place."""
    near_misses.refuse(pod.spec, settings)
    near_misses.refuse_unequal(pod.spec, settings)
    spec, request = quotas.completed(pod.spec, read_request(pod.spec, settings), settings)
    request = burst.limited(request, pod.metadata.annotations or {}, settings) if request else request
    containers = {
        container.name: resources.from_request(container, container_request, settings)
        for container, container_request in zip(_containers(spec), request.containers, strict=True)
        if container_request.count
    }
    warnings = (*near_misses.of_device_plugin(pod.spec, settings), *ignored_percentages(pod.spec, settings))
    return _Prepared(containers, placed=request, warnings=warnings)


def _containers(spec: PodSpec) -> Sequence[PodContainer]:
    return (*spec.init_containers, *spec.containers)


def _check_size(pod: Pod) -> None:
    """Refuse a pod with more containers or longer annotations than `allocation.limits` allows.

    Admission checks only the parts that it reads; the policy `tranche-creation` checks all of them.
    """
    _forbid(limits.excess_of_containers(len(_containers(pod.spec))))
    _forbid(limits.excess_of_annotations(pod.metadata.annotations or {}))


def _forbid(excess: str) -> None:
    if excess:
        raise ForbiddenPodError(excess)


def _check_security(spec: PodSpec) -> None:
    for container in _containers(spec):
        if breach := security.breach(container):
            raise ForbiddenPodError(
                f"container {container.name} {breach} and so sees all GPUs of its node, whatever it was given: remove"
                " that from its securityContext, or the pod's GPU resources"
            )


def _check_node(spec: PodSpec, static: Allocation | None) -> None:
    if not spec.node_name or (static is not None and spec.node_name == static.node):
        return
    if static is not None:
        raise ForbiddenPodError(
            f"pod has node assigned: spec.nodeName is {spec.node_name!r}, but its static allocation is on"
            f" {static.node!r}; remove spec.nodeName"
        )
    raise ForbiddenPodError(
        f"pod has node assigned: spec.nodeName is {spec.node_name!r}, so no scheduler would give it a GPU; remove"
        " spec.nodeName and choose the node with spec.nodeSelector kubernetes.io/hostname"
    )


def _scheduler(spec: PodSpec, name: str) -> Iterator[Operation]:
    if spec.scheduler_name != name:
        yield add(pointer("spec", "schedulerName"), name)


def _spec_operations(spec: PodSpec, allocation: AllocationSettings, settings: WebhookSettings) -> Iterator[Operation]:
    is_handed_over = allocation.hands_over and bool(spec.resource_claims)
    yield from _scheduler(spec, names.HAND_OVER_NAME if is_handed_over else names.SCHEDULER_NAME)
    if settings.runtime_class_name and not spec.runtime_class_name:
        yield add(pointer("spec", "runtimeClassName"), settings.runtime_class_name)
    if (seconds := _grace_seconds(spec, settings)) != spec.termination_grace_period_seconds:
        yield add(pointer("spec", "terminationGracePeriodSeconds"), seconds)


def _grace_seconds(spec: PodSpec, settings: WebhookSettings) -> int | None:
    """Return the grace period that a GPU pod may have.

    With 0, a deleted pod is removed and its cards are free before the kubelet has killed its containers. With years,
    the cards stay with a pod that was deleted or preempted.
    """
    seconds, longest = spec.termination_grace_period_seconds, settings.longest_grace_seconds
    if seconds is None:
        return None
    return max(1, min(seconds, longest) if longest else seconds)


def _grace_warnings(spec: PodSpec, settings: WebhookSettings) -> Iterator[str]:
    seconds, allowed = spec.termination_grace_period_seconds, _grace_seconds(spec, settings)
    if seconds is not None and allowed is not None and allowed < seconds:
        yield (
            f"spec.terminationGracePeriodSeconds is {seconds}: reduced to {allowed}, the longest of a GPU pod here"
            " (webhook.longest_grace_seconds)"
        )


def _annotation_operations(
    annotations: Mapping[str, str], static: Allocation | None, claimed: NamedClaim | None, isolation: Isolation
) -> Iterator[Operation]:
    if static is not None:
        visible_as = claimed.spec.devices.visible_as if claimed is not None else "UUID"
        derived = static_allocation.annotations(annotations, static, visible_as=visible_as, isolation=isolation)
        for key, value in derived.items():
            yield add(pointer("metadata", "annotations", key), value)


def _container_changes(
    spec: PodSpec, prepared: Mapping[str, GpuContainer], isolation: Isolation
) -> Iterator[tuple[Iterable[Operation], Iterable[str]]]:
    """Iterate over the operations and the warnings of each part of each container."""
    for kind, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for position, container in enumerate(containers):
            at = pointer("spec", kind, position)
            gpu_container = prepared.get(container.name)
            if gpu_container is None:
                cards, wanted = 0, environment.hidden_gpu_entries()
            else:
                yield resources.operations(container, at=at, prepared=gpu_container), ()
                cards = gpu_container.cards
                wanted = environment.entries(container, gpu_container, isolation)
            yield environment.changes(container, at=at, cards=cards, wanted=wanted)
