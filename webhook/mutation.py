"""What admission makes of a pod: routed to the scheduler, its request explicit, its environment by reference.

A pure function of the pod and of who sends it. Doing it twice does it once, so being invoked again after another
webhook added a container is safe.
"""

from collections.abc import Iterator, Mapping

import msgspec

from allocation import names
from allocation.allocation import Allocation
from allocation.constraints import read_constraints
from allocation.quota import certain_excess
from allocation.request import read_request
from allocation.settings import AllocationSettings
from webhook import environment, resources, static_allocation
from webhook.patch import Operation, add, pointer
from webhook.refusal import RefusedError
from webhook.resources import Needs
from webhook.review import NO_LABELS, Pod, PodContainer, PodSpec
from webhook.settings import WebhookSettings

_DEFAULT_SCHEDULERS = ("", "default-scheduler")
MIRROR = "kubernetes.io/config.mirror"
"""An annotation of a pod that a kubelet was told of by a file, not by the API."""
_NODE_USER = "system:node:"


class Mutation(msgspec.Struct, frozen=True):
    """A pod may be created.

    Attributes:
        operations: how it changes; none where it is no affair of ours, or already as it shall be.
        warnings: what its creator should know.
    """

    operations: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()


Quotas = Mapping[str, Mapping[str, str]]
"""The `spec.hard` of a namespace's ResourceQuota objects by their names."""


def mutate(
    pod: Pod, *, username: str, allocation: AllocationSettings, settings: WebhookSettings, quotas: Quotas
) -> Mutation:
    """Answer what admission makes of `pod`, which `username` creates in a namespace with `quotas`.

    Raises:
        RefusedError: it asks for what it may not have.
        AllocationError: a field of it holds what it may not hold.
    """
    if not pod.spec.containers:
        raise RefusedError("pod has no containers: add one")
    annotations = pod.metadata.annotations or {}
    static = static_allocation.read(annotations, username=username, trusted=settings.trusted)
    stranger = _no_affair_of_ours(pod, username=username, settings=settings)
    if stranger and static is not None:
        raise RefusedError(f"the pod has a static allocation, but {stranger}: remove one or the other")
    if stranger:
        return Mutation()
    warnings: list[str] = []
    if static is not None:
        needs = static_allocation.needs(pod, static, allocation)
    else:
        needs = _requested(pod.spec, annotations, allocation, quotas, warnings)
    if not needs:
        return Mutation()
    _check_security(pod.spec)
    _check_node(pod.spec, static)
    operations = (
        *_spec_operations(pod.spec, settings),
        *_annotation_operations(annotations, static),
        *_container_operations(pod.spec, needs, warnings),
    )
    return Mutation(operations=operations, warnings=tuple(warnings))


def _no_affair_of_ours(pod: Pod, *, username: str, settings: WebhookSettings) -> str:
    """Answer why a pod is left alone, empty where it is not."""
    labels = pod.metadata.labels or NO_LABELS
    if labels.injection == "disabled":
        return f"label {names.INJECTION_LABEL}: disabled opts it out"
    if labels.hami_webhook == "ignore":
        return f"label {names.HAMI_WEBHOOK_LABEL}: ignore opts it out"
    scheduler = pod.spec.scheduler_name or ""
    if scheduler not in (*_DEFAULT_SCHEDULERS, names.SCHEDULER_NAME, *settings.aliases, *settings.takeover):
        return f"spec.schedulerName {scheduler!r} gives it to another scheduler"
    if MIRROR in (pod.metadata.annotations or {}) and username.startswith(_NODE_USER):
        # It runs whatever is answered here. Seen in the API, it at least closes its node for placements.
        return "it mirrors a static pod of its node"
    return ""


def _requested(
    spec: PodSpec,
    annotations: Mapping[str, str],
    settings: AllocationSettings,
    quotas: Quotas,
    warnings: list[str],
) -> dict[str, Needs]:
    request = read_request(spec, settings, warn=warnings.append)
    if request:
        read_constraints(annotations, settings)  # what cannot be read is refused now, not held later
        excess = certain_excess(request, quotas, settings)
        if excess:
            raise RefusedError(f"exceeding resource quota: {excess}; ask for less, or have the quota raised")
    return {
        container.name: resources.requested(container, asked, settings)
        for container, asked in zip((*spec.init_containers, *spec.containers), request.containers, strict=True)
        if asked.count
    }


def _check_security(spec: PodSpec) -> None:
    for container in (*spec.init_containers, *spec.containers):
        if container.security_context is not None and container.security_context.privileged:
            raise RefusedError(
                f"container {container.name} is privileged and so sees all GPUs of its node, whatever it was given: set"
                " securityContext.privileged to false, or remove the pod's GPU resources"
            )


def _check_node(spec: PodSpec, static: Allocation | None) -> None:
    if not spec.node_name or (static is not None and spec.node_name == static.node):
        return
    if static is not None:
        raise RefusedError(
            f"pod has node assigned: spec.nodeName is {spec.node_name!r}, its static allocation is on {static.node!r};"
            " remove spec.nodeName"
        )
    raise RefusedError(
        f"pod has node assigned: spec.nodeName is {spec.node_name!r}, so no scheduler would give it a GPU; remove"
        " spec.nodeName and choose the node with spec.nodeSelector kubernetes.io/hostname"
    )


def _spec_operations(spec: PodSpec, settings: WebhookSettings) -> Iterator[Operation]:
    if spec.scheduler_name != names.SCHEDULER_NAME:
        yield add(pointer("spec", "schedulerName"), names.SCHEDULER_NAME)
    if settings.runtime_class_name and not spec.runtime_class_name:
        yield add(pointer("spec", "runtimeClassName"), settings.runtime_class_name)


def _annotation_operations(annotations: Mapping[str, str], static: Allocation | None) -> Iterator[Operation]:
    if static is not None:
        for key, value in static_allocation.annotations(annotations, static).items():
            yield add(pointer("metadata", "annotations", key), value)


def _container_operations(spec: PodSpec, needs: Mapping[str, Needs], warnings: list[str]) -> Iterator[Operation]:
    for kind, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for position, container in enumerate(containers):
            yield from _one_container(container, pointer("spec", kind, position), needs, warnings)


def _one_container(
    container: PodContainer, at: str, needs: Mapping[str, Needs], warnings: list[str]
) -> Iterator[Operation]:
    own = needs.get(container.name)
    if own is None:
        wanted = environment.blind_entries()
    else:
        yield from resources.operations(container, at=at, needs=own)
        wanted = environment.entries(container.name, own.cards, own.constants)
    yield from environment.operations(container, at=at, wanted=wanted, warn=warnings.append)
